package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// setProperty sets a property, such as runtime.connectionState, to a JSON value and notifies the
// collectors.
func setProperty(
	ctx *simulator.Context, entity mo.Entity, path string, value json.RawMessage,
) error {
	var err error
	ctx.WithLock(entity, func() {
		var field reflect.Value
		if field, err = fieldAt(reflect.ValueOf(entity).Elem(), path); err != nil {
			return
		}
		decoded := reflect.New(field.Type())
		if err = json.Unmarshal(value, decoded.Interface()); err != nil {
			err = fmt.Errorf("%s must be a %s: %w", path, field.Type(), err)
			return
		}
		field.Set(decoded.Elem())
	})
	if err == nil {
		touch(ctx, entity.Reference())
	}
	return err
}

func fieldAt(value reflect.Value, path string) (reflect.Value, error) {
	for name := range strings.SplitSeq(path, ".") {
		for value.Kind() == reflect.Pointer || value.Kind() == reflect.Interface {
			if value.IsNil() {
				return value, fmt.Errorf("%s: the parent of %s is not set", path, name)
			}
			value = value.Elem()
		}
		if value.Kind() != reflect.Struct || name == "" {
			return value, fmt.Errorf("%s: %s is not a field", path, name)
		}
		value = value.FieldByName(strings.ToUpper(name[:1]) + name[1:])
		if !value.IsValid() || !value.CanSet() {
			return value, fmt.Errorf("%s: unknown property %s", path, name)
		}
	}
	return value, nil
}

// unknownProperty returns InvalidProperty if a property of the objects does not exist.
func unknownProperty(objects []types.ObjectContent) types.BaseMethodFault {
	for _, object := range objects {
		for _, missing := range object.MissingSet {
			if invalid, ok := missing.Fault.Fault.(*types.InvalidProperty); ok {
				return invalid
			}
		}
	}
	return nil
}
