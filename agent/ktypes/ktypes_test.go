package ktypes_test

import (
	"strings"
	"testing"

	"kerninst/agent/ktypes"
	"kerninst/agent/ktypes/ktypestest"
)

func TestFields(t *testing.T) {
	types := ktypestest.Kernel(t)
	file, err := types.Param("vfs_read", 0)
	if err != nil || file.String() != "struct file *" || !file.Pointer() || file.Size() != 8 {
		t.Fatalf("%v, %v", file, err)
	}
	for _, c := range []struct {
		path            string
		off, bits, from int
		size            int
		signed          bool
		is              string
	}{
		{"f_inode", 0, 0, 0, 8, false, "struct inode *"},
		{"f_inode i_size", 0, 0, 0, 8, true, "long"},
		{"f_inode a", 8, 0, 0, 4, true, "int"},
		{"f_inode c", 9, 0, 0, 1, false, "u8"},
		{"f_inode x", 12, 3, 0, 4, false, "unsigned int"},
		{"f_inode y", 12, 5, 3, 4, false, "unsigned int"},
		{"name", 8, 0, 0, 16, false, "char[16]"},
		{"kind", 24, 0, 0, 4, true, "enum kind"},
	} {
		at, f := file, ktypes.Field{}
		for _, name := range strings.Fields(c.path) {
			if f, err = at.Field(name); err != nil {
				t.Fatal(err)
			}
			at = f.Type
		}
		if f.Off != c.off || f.Bits != c.bits || f.BitOff != c.from || at.Size() != c.size || at.Signed() != c.signed || at.String() != c.is {
			t.Errorf("%s: %+v, %d bytes, signed %v, %v", c.path, f, at.Size(), at.Signed(), at)
		}
	}
}

func TestErrors(t *testing.T) {
	types := ktypestest.Kernel(t)
	file, _ := types.Struct("file")
	inode, _ := types.Struct("inode")
	size, _ := inode.Field("i_size")
	_, noParam := types.Param("vfs_read", 2)
	_, noFunction := types.Param("vfs_raed", 0)
	_, noneOfName := types.ParamNamed("vfs_read", "fill")
	_, noName := types.ParamNamed("vfs_read", "")
	if n, err := types.ParamNamed("vfs_read", "count"); n != 1 || err != nil {
		t.Errorf("count is argument %d: %v", n, err)
	}
	_, noReturn := types.Return("nothing")
	_, noStruct := types.Struct("inodes")
	_, noField := file.Field("f_inod")
	_, inside := inode.Field("bb")
	_, number := size.Type.Field("x")
	for _, c := range []struct {
		err  error
		want string
	}{
		{noParam, "no arg2: it has 2 arguments, arg0 is struct file * file, arg1 is unsigned long count"},
		{noneOfName, "vfs_read has no argument fill: it has file, count; did you mean file?"},
		{noName, "vfs_read has no argument : it has file, count"},
		{noFunction, "no function vfs_raed; did you mean vfs_read?"},
		{noReturn, "nothing returns nothing"},
		{noStruct, "no struct inodes; did you mean inode?"},
		{noField, "struct file has no field f_inod; did you mean f_inode?"},
		{inside, "struct inode has no field bb; did you mean b?"},
		{number, "long has no fields"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%v; want %q", c.err, c.want)
		}
	}
	if _, err := ktypes.Read([]byte("no types")); err == nil {
		t.Error("anything is taken for types")
	}
}

// TestOnStack: which functions may have arguments on the stack, and of which it is not known.
func TestOnStack(t *testing.T) {
	types := ktypestest.Kernel(t)
	for _, c := range []struct{ function, amd64, others string }{
		{"vfs_read", "no", "no"},
		{"vfs_read.constprop.0", "no", "no"},
		{"vfs_read.isra.0", "unknown", "unknown"}, // has other arguments
		{"nothing", "no", "no"},
		{"many", "yes", "no"},
		{"some", "yes", "yes"},
		{"three", "no", "no"},
		{"pairs", "yes", "yes"},
		{"packed", "yes", "no"},
		{"large", "yes", "no"},
		{"file", "unknown", "unknown"}, // is none
	} {
		for arch, want := range map[string]string{"amd64": c.amd64, "arm64": c.others, "riscv64": c.others} {
			got := "unknown"
			if on, err := types.OnStack(arch, c.function); err == nil {
				got = map[bool]string{true: "yes", false: "no"}[on]
			}
			if got != want {
				t.Errorf("%s, %s: %s, want %s", c.function, arch, got, want)
			}
		}
	}
	if _, err := types.OnStack("m68k", "vfs_read"); err == nil {
		t.Error("m68k passes arguments as somebody knows")
	}
}
