package wire

import (
	"context"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
)

// wire.pb.go is made from wire.proto by `make generate`, which needs protoc.
// This needs none: it compiles the one and compares with what the other holds.
func TestGeneratedCodeIsCurrent(t *testing.T) {
	c := protocompile.Compiler{Resolver: &protocompile.SourceResolver{ImportPaths: []string{"../.."}}}
	files, err := c.Compile(context.Background(), "agent/wire/wire.proto")
	if err != nil {
		t.Fatal(err)
	}
	want := protodesc.ToFileDescriptorProto(files[0])
	got := protodesc.ToFileDescriptorProto(File_agent_wire_wire_proto)
	if !proto.Equal(got, want) {
		t.Errorf("wire.pb.go is not made from wire.proto: run make generate")
	}
}
