package main

import (
	"context"
	"strings"
	"testing"

	"github.com/vmware/govmomi/vim25/types"
)

func TestANameIsCountedAsVCenterStoresIt(t *testing.T) {
	for name, length := range map[string]int{
		"": 0, "abc": 3, "a/b": 5, `a\b`: 5, "100%": 6, "größe": 5,
	} {
		if got := nameLength(name); got != length {
			t.Errorf("%q counts %d, not %d", name, got, length)
		}
	}
}

func TestNamesOver80AreRefused(t *testing.T) {
	rig := start(t, "--folder", "vm-operator")
	client, ctx := rig.client(), context.Background()
	folder, vm := rig.folder(client, "vm-operator"), rig.vm(client, "DC0_H0_VM0")
	long := strings.Repeat("x", 81)

	_, err := folder.CreateFolder(ctx, long)
	expectFault[*types.InvalidName](t, err)
	_, err = folder.CreateFolder(ctx, strings.Repeat("x", 77)+"//")
	expectFault[*types.InvalidName](t, err)
	_, err = vm.Clone(ctx, folder, long, types.VirtualMachineCloneSpec{})
	expectFault[*types.InvalidName](t, err)
	_, err = vm.Rename(ctx, long)
	expectFault[*types.InvalidName](t, err)
	if _, err = folder.CreateFolder(ctx, strings.Repeat("x", 80)); err != nil {
		t.Fatal(err)
	}
}
