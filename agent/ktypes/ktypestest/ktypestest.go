// Package ktypestest has the types of a small kernel, for tests of what asks for such.
package ktypestest

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf/btf"

	"kerninst/agent/ktypes"
)

// Kernel is a small one's types: what a compiler would say of
//
//	struct inode { const loff_t i_size; union { int a; struct { u8 b; u8 c; }; }; unsigned x:3, y:5; };
//	struct file { struct inode *f_inode; char name[16]; enum kind kind; };
//	long vfs_read(struct file *file, unsigned long count);
//	void nothing(void);
//	void many(u8 a, ..., u8 g);
//	void some(...);
//	int three(struct inode a, struct inode b, int c);
//	int pairs(int a, struct inode b, struct inode c, struct inode d);
//	int packed(struct { u8 a; unsigned b; } __attribute__((packed)) a);
//	int large(struct file a);
//	struct task_struct { struct thread_info { u32 flags, cpu; } thread_info; int pid, tgid; char comm[16]; struct file *file; };
func Kernel(t *testing.T) *ktypes.Types {
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
		{Name: "x", Type: unsigned, Offset: 96, BitfieldSize: 3}, {Name: "y", Type: unsigned, Offset: 99, BitfieldSize: 5}, {Name: "z", Type: unsigned, Offset: 104, BitfieldSize: 1},
	}}
	file := &btf.Struct{Name: "file", Size: 32, Members: []btf.Member{
		{Name: "f_inode", Type: &btf.Pointer{Target: inode}},
		{Name: "name", Type: &btf.Array{Type: char, Index: unsigned, Nelems: 16}, Offset: 64},
		{Name: "kind", Type: &btf.Enum{Name: "kind", Size: 4, Signed: true}, Offset: 192},
	}}
	cpu := &btf.Struct{Name: "thread_info", Size: 8, Members: []btf.Member{{Name: "cpu", Type: unsigned, Offset: 32}}}
	task := &btf.Struct{Name: "task_struct", Size: 40, Members: []btf.Member{
		{Name: "thread_info", Type: cpu}, {Name: "pid", Type: number, Offset: 64}, {Name: "tgid", Type: number, Offset: 96},
		{Name: "comm", Type: &btf.Array{Type: char, Index: unsigned, Nelems: 16}, Offset: 128}, {Name: "file", Type: &btf.Pointer{Target: file}, Offset: 256},
	}}
	b, err := btf.NewBuilder([]btf.Type{
		task,
		&btf.Func{Name: "vfs_read", Type: &btf.FuncProto{Return: long, Params: []btf.FuncParam{
			{Name: "file", Type: &btf.Pointer{Target: file}}, {Name: "count", Type: ulong}}}},
		&btf.Func{Name: "many", Type: &btf.FuncProto{Return: &btf.Void{}, Params: slices.Repeat([]btf.FuncParam{{Name: "a", Type: u8}}, 7)}},
		&btf.Func{Name: "some", Type: &btf.FuncProto{Return: &btf.Void{}, Params: []btf.FuncParam{{Type: &btf.Void{}}}}},
		&btf.Func{Name: "three", Type: &btf.FuncProto{Return: number, Params: []btf.FuncParam{{Name: "a", Type: inode}, {Name: "b", Type: inode}, {Name: "c", Type: number}}}},
		&btf.Func{Name: "pairs", Type: &btf.FuncProto{Return: number, Params: []btf.FuncParam{{Name: "a", Type: number},
			{Name: "b", Type: inode}, {Name: "c", Type: inode}, {Name: "d", Type: inode}}}},
		&btf.Func{Name: "packed", Type: &btf.FuncProto{Return: number, Params: []btf.FuncParam{{Name: "a", Type: &btf.Struct{Size: 5, Members: []btf.Member{
			{Name: "a", Type: u8}, {Name: "b", Type: unsigned, Offset: 8}}}}}}},
		&btf.Func{Name: "large", Type: &btf.FuncProto{Return: number, Params: []btf.FuncParam{{Name: "a", Type: file}}}},
		&btf.Func{Name: "nothing", Type: &btf.FuncProto{Return: &btf.Void{}}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := b.Marshal(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	types, err := ktypes.Read(raw)
	if err != nil {
		t.Fatal(err)
	}
	return types
}
