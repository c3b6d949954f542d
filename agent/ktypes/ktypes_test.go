package ktypes

import (
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// kernel is a small one: what a compiler would say of
//
//	struct inode { const loff_t i_size; union { int a; struct { u8 b; u8 c; }; }; unsigned x:3, y:5; };
//	struct file { struct inode *f_inode; char name[16]; enum kind kind; };
//	long vfs_read(struct file *file, unsigned long count);
//	void nothing(void);
func kernel(t *testing.T) *Types {
	t.Helper()
	u8 := &btf.Int{Name: "u8", Size: 1}
	char := &btf.Int{Name: "char", Size: 1, Encoding: btf.Signed}
	number := &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}
	unsigned := &btf.Int{Name: "unsigned int", Size: 4}
	long := &btf.Int{Name: "long", Size: 8, Encoding: btf.Signed}
	ulong := &btf.Int{Name: "unsigned long", Size: 8}
	pair := &btf.Struct{Size: 2, Members: []btf.Member{{Name: "b", Type: u8}, {Name: "c", Type: u8, Offset: 8}}}
	either := &btf.Union{Size: 4, Members: []btf.Member{{Name: "a", Type: number}, {Type: pair}}}
	inode := &btf.Struct{Name: "inode", Size: 16, Members: []btf.Member{
		{Name: "i_size", Type: &btf.Const{Type: &btf.Typedef{Name: "loff_t", Type: long}}},
		{Type: either, Offset: 64},
		{Name: "x", Type: unsigned, Offset: 96, BitfieldSize: 3}, {Name: "y", Type: unsigned, Offset: 99, BitfieldSize: 5},
	}}
	file := &btf.Struct{Name: "file", Size: 32, Members: []btf.Member{
		{Name: "f_inode", Type: &btf.Pointer{Target: inode}},
		{Name: "name", Type: &btf.Array{Type: char, Index: unsigned, Nelems: 16}, Offset: 64},
		{Name: "kind", Type: &btf.Enum{Name: "kind", Size: 4, Signed: true}, Offset: 192},
	}}
	b, err := btf.NewBuilder([]btf.Type{
		&btf.Func{Name: "vfs_read", Type: &btf.FuncProto{Return: long, Params: []btf.FuncParam{
			{Name: "file", Type: &btf.Pointer{Target: file}}, {Name: "count", Type: ulong}}}},
		&btf.Func{Name: "nothing", Type: &btf.FuncProto{Return: &btf.Void{}}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := b.Marshal(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	types, err := Read(raw)
	if err != nil {
		t.Fatal(err)
	}
	return types
}

func TestFields(t *testing.T) {
	types := kernel(t)
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
		at, f := file, Field{}
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
	types := kernel(t)
	file, _ := types.Struct("file")
	inode, _ := types.Struct("inode")
	size, _ := inode.Field("i_size")
	_, noParam := types.Param("vfs_read", 2)
	_, noFunction := types.Param("vfs_raed", 0)
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
	if _, err := Read([]byte("no types")); err == nil {
		t.Error("anything is taken for types")
	}
}
