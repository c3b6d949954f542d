package ci

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestAssertionsHaveAnOrder: two runs give the same results.json, which lists assertions
// as they were made. Go goes through a map in another order each time.
func TestAssertionsHaveAnOrder(t *testing.T) {
	const dir = "../scenarios"
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range strings.Fields(list(t, "-f", "{{range .GoFiles}}{{.}} {{end}}", dir)) {
		f, err := parser.ParseFile(fset, dir+"/"+name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	for _, at := range unordered(t, fset, files, exported(t, dir)) {
		t.Errorf("%s: assertions in the order of a map", at)
	}
}

func TestUnorderedIsFound(t *testing.T) {
	const text = `package p
type T struct{}
func (*T) equal() {}
func (t *T) check(m map[string]int, s []int) {
	for range m { t.equal() }
	for range m { if true { t.equal() } }
	for range m { println() }
	for range s { t.equal() }
}`
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "p.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	got, want := unordered(t, fset, []*ast.File{f}, importer.Default()), []string{"p.go:5:2", "p.go:6:2"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// unordered are the loops over maps in a package that call methods of its type T.
func unordered(t *testing.T, fset *token.FileSet, files []*ast.File, imp types.Importer) (found []string) {
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	if _, err := (&types.Config{Importer: imp}).Check("p", fset, files, info); err != nil {
		t.Fatal(err)
	}
	asserts := func(n ast.Node) (yes bool) {
		ast.Inspect(n, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				m := info.Selections[s]
				yes = yes || m != nil && m.Kind() == types.MethodVal && strings.HasSuffix(m.Recv().String(), "p.T")
			}
			return !yes
		})
		return yes
	}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			if r, ok := n.(*ast.RangeStmt); ok {
				if _, ok := info.TypeOf(r.X).Underlying().(*types.Map); ok && asserts(r.Body) {
					found = append(found, fset.Position(r.Pos()).String())
				}
			}
			return true
		})
	}
	return found
}

// exported is an importer of what a package is built from, as `make test` builds it: else all is compiled again.
func exported(t *testing.T, dir string) types.Importer {
	files := map[string]string{}
	for _, line := range strings.Split(list(t, "-trimpath", "-deps", "-export", "-f", "{{.ImportPath}} {{.Export}}", dir), "\n") {
		if name, file, ok := strings.Cut(line, " "); ok {
			files[name] = file
		}
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
}

// list is what `go list` prints.
func list(t *testing.T, args ...string) string {
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
