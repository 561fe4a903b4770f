package main

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// text returns the first value that is a string and not empty.
func text(values ...any) string {
	for _, value := range values {
		if text, _ := value.(string); text != "" {
			return text
		}
	}
	return ""
}

// number returns nil for a value that vCenter did not report.
func number(value any) *int64 {
	var result int64
	switch value := value.(type) {
	case int16:
		result = int64(value)
	case int32:
		result = int64(value)
	case int64:
		result = value
	default:
		return nil
	}
	return &result
}

func subtract(total int64, used *int64) *int64 {
	if used == nil {
		return nil
	}
	free := total - *used
	return &free
}

func flag(value any) *bool {
	if value, ok := value.(bool); ok {
		return &value
	}
	return nil
}

func seconds(value any) *metav1.Time {
	if moment, ok := value.(time.Time); ok {
		return &metav1.Time{Time: moment.Truncate(time.Second).UTC()}
	}
	return nil
}
