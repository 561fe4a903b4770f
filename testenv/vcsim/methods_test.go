package main

import "testing"

func TestUnknownMethodsCountAsMutating(t *testing.T) {
	for method, expected := range map[string]bool{
		"RetrievePropertiesEx":          true,
		"VslmListVStorageObjectForSpec": true,
		"VslmRetrieveVStorageObject":    true,
		"CreateFilter":                  true,
		"CloneVM_Task":                  false,
		"CreateFolder":                  false,
		"VslmDeleteVStorageObject_Task": false,
		"Unheard_Task":                  false,
	} {
		if isReadOnly(method) != expected {
			t.Errorf("%s: reads is %v", method, !expected)
		}
	}
}
