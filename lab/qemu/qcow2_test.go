package qemu

import (
	"testing"

	"kerninst/lab/qemu/qemutest"
	"kerninst/lab/vm"
)

// QEMU takes an empty file for a disk of the size that was asked for, or somewhat more.
func TestEmptyQcow2(t *testing.T) {
	s := tiny(t, "arm64", "", qemutest.Hang)
	s.Time = vm.Exact
	m := mustStart(t, s)
	for _, size := range []int64{1, 180<<20 + 1, 512 << 20, 700 << 20} {
		files := m.freezer().Files
		if err := files.Give(soon(t), "empty", emptyQcow2(size)); err != nil {
			t.Fatal(err)
		}
		file := object{"driver": "file", "filename": files.At("empty")}
		if err := m.monitor.Execute(soon(t), "blockdev-add", object{"driver": "qcow2", "node-name": "empty", "file": file}, nil); err != nil {
			t.Fatalf("%d: %v", size, err)
		}
		var nodes []struct {
			Name  string `json:"node-name"`
			Image struct {
				Size    int64 `json:"virtual-size"`
				Special struct {
					Data struct{ Corrupt bool }
				} `json:"format-specific"`
			}
		}
		if err := m.monitor.Execute(soon(t), "query-named-block-nodes", object{"flat": true}, &nodes); err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes {
			if n.Name == "empty" && (n.Image.Size < size || n.Image.Size > size+qcow2Table || n.Image.Special.Data.Corrupt) {
				t.Errorf("of %d bytes: %+v", size, n)
			}
		}
		if err := m.monitor.Execute(soon(t), "blockdev-del", object{"node-name": "empty"}, nil); err != nil {
			t.Fatal(err)
		}
	}
}
