package main

import (
	"regexp"
	"strings"
)

// faultMessages are vCenter's messages for common faults; the library sends most faults without a
// message.
var faultMessages = map[string]string{
	"NotAuthenticated":  "The session is not authenticated.",
	"InvalidLogin":      "Cannot complete login due to an incorrect user name or password.",
	"NoPermission":      "Permission to perform this operation was denied.",
	"InvalidName":       "The specified name is invalid.",
	"DuplicateName":     "The name already exists.",
	"InvalidPowerState": "The attempted operation cannot be performed in the current state.",
	"InvalidState":      "The operation is not allowed in the current state.",
	"InvalidArgument":   "A specified parameter was not correct.",
	"InvalidProperty":   "The specified property does not exist.",
	"RequestCanceled":   "The request was canceled by a user.",
	"NotFound":          "The requested object was not found.",
	"NotSupported":      "The operation is not supported on the object.",
	"ResourceInUse":     "The resource is in use.",
	"TaskInProgress":    "Another task is already in progress.",
	"NoDiskSpace":       "There is not enough space on the datastore.",
	"HostNotConnected":  "The host is not connected.",
	"ConcurrentAccess":  "The object was changed by another client.",

	"ManagedObjectNotFound": "The object has already been deleted " +
		"or has not been completely created",
	"InvalidCollectorVersion":    "The collector version is not valid.",
	"InsufficientResourcesFault": "The available resources are not sufficient for the operation.",
}

// faultMessage returns the message of a fault, or its name with spaces.
func faultMessage(name string) string {
	if message, ok := faultMessages[name]; ok {
		return message
	}
	return strings.TrimSpace(camelCaseWord.ReplaceAllString(name, " $1")) + "."
}

var (
	camelCaseWord = regexp.MustCompile(`([A-Z][a-z0-9]+)`)
	faultPattern  = regexp.MustCompile(`<(\w+)Fault [^>]*xsi:type="`)
)

// withFaultMessage sets an empty faultstring in a SOAP response.
func withFaultMessage(answer []byte) []byte {
	match := faultPattern.FindSubmatch(answer)
	if match == nil {
		return answer
	}
	faultString := "<faultstring>" + faultMessage(string(match[1])) + "</faultstring>"
	text := strings.Replace(string(answer), "<faultstring></faultstring>", faultString, 1)
	return []byte(strings.Replace(text, "<faultstring>Login failure</faultstring>", faultString, 1))
}
