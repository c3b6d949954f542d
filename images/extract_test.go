package images

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// archive is a package with the given members, as no tool would make one.
func archive(t *testing.T, headers []tar.Header) string {
	t.Helper()
	var data bytes.Buffer
	w := tar.NewWriter(&data)
	for _, h := range headers {
		h.Mode = 0o644
		if h.Typeflag == 0 {
			h.Typeflag, h.Size = tar.TypeReg, 4
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg && h.Size == 4 {
			w.Write([]byte("evil"))
		}
	}
	w.Flush()
	data.Write(make([]byte, 1024))
	var empty bytes.Buffer
	tar.NewWriter(&empty).Close()
	var deb bytes.Buffer
	deb.WriteString("!<arch>\n")
	for _, m := range []struct {
		name string
		data []byte
	}{{"debian-binary", []byte("2.0\n")}, {"control.tar", empty.Bytes()}, {"data.tar", data.Bytes()}} {
		fmt.Fprintf(&deb, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", m.name, 0, 0, 0, "100644", len(m.data)) // ar(5)
		deb.Write(m.data)
		deb.Write(make([]byte, len(m.data)%2))
	}
	name := filepath.Join(t.TempDir(), "deb")
	if err := os.WriteFile(name, deb.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// Members cannot leave the folder they are unpacked in, not by way of what an
// earlier package left there either.
func TestExtractStaysInside(t *testing.T) {
	link := func(name, to string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to}
	}
	for name, tt := range map[string]struct {
		packages [][]tar.Header // $OUT is a folder outside
		want     string         // in the error; empty: all is well
	}{
		"plain":                {[][]tar.Header{{{Name: "./usr/bin/x"}}, {{Name: "./usr/bin/x"}}}, ""},
		"through an own link":  {[][]tar.Header{{{Name: "./usr/bin", Typeflag: tar.TypeDir}, link("./bin", "usr/bin"), {Name: "./bin/x"}}}, ""},
		"absolute":             {[][]tar.Header{{{Name: "$OUT/x"}}}, "outside"},
		"up":                   {[][]tar.Header{{{Name: "../x"}}}, "outside"},
		"up in the middle":     {[][]tar.Header{{{Name: "./usr/../../x"}}}, "outside"},
		"link, then through":   {[][]tar.Header{{link("./l", "$OUT"), {Name: "./l/x"}}}, "escapes"},
		"in another package":   {[][]tar.Header{{link("./l", "$OUT")}, {{Name: "./l/x"}}}, "escapes"},
		"relative, up":         {[][]tar.Header{{link("./l", "../../../../../.."), {Name: "./l$OUT/x"}}}, "escapes"},
		"link to a file":       {[][]tar.Header{{link("./l", "$OUT/secret"), {Name: "./l"}}}, ""}, // replaced
		"hard link":            {[][]tar.Header{{{Name: "./h", Typeflag: tar.TypeLink, Linkname: "$OUT/secret"}}}, "no such file"},
		"hard link, up":        {[][]tar.Header{{{Name: "./h", Typeflag: tar.TypeLink, Linkname: "../secret"}}}, "escapes"},
		"hard link by a link":  {[][]tar.Header{{link("./l", "$OUT"), {Name: "./h", Typeflag: tar.TypeLink, Linkname: "./l/secret"}}}, "escapes"},
		"folder over a link":   {[][]tar.Header{{link("./l", "$OUT"), {Name: "./l", Typeflag: tar.TypeDir}}}, "./l"},
		"folder by a link":     {[][]tar.Header{{link("./l", "$OUT"), {Name: "./l/d", Typeflag: tar.TypeDir}}}, "escapes"},
		"device":               {[][]tar.Header{{{Name: "./d", Typeflag: tar.TypeBlock, Devmajor: 8}}}, "neither file"},
		"pipe":                 {[][]tar.Header{{{Name: "./p", Typeflag: tar.TypeFifo}}}, "neither file"},
		"huge":                 {[][]tar.Header{{{Name: "./x", Typeflag: tar.TypeReg, Size: 1 << 40}}}, "more than"},
		"shorter than it says": {[][]tar.Header{{{Name: "./x", Typeflag: tar.TypeReg, Size: 1 << 20}}}, "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			outside, dir := t.TempDir(), t.TempDir()
			if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600); err != nil {
				t.Fatal(err)
			}
			var err error
			for _, headers := range tt.packages {
				for i := range headers {
					headers[i].Name = strings.Replace(headers[i].Name, "$OUT", outside, 1)
					headers[i].Linkname = strings.Replace(headers[i].Linkname, "$OUT", outside, 1)
				}
				err = errors.Join(err, extract(context.Background(), archive(t, headers), dir))
			}
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("extract = %v, want %q", err, tt.want)
			}
			left, _ := os.ReadDir(outside)
			secret, _ := os.ReadFile(filepath.Join(outside, "secret"))
			if len(left) != 1 || string(secret) != "secret" {
				t.Errorf("outside there is %v, and the secret is %q", left, secret)
			}
			if st, err := os.Stat(filepath.Join(dir, "h")); err == nil {
				t.Errorf("linked from outside: %v", st)
			}
		})
	}
}

// Who has seen enough of a large package goes on at once: dpkg-deb's processes,
// which then write to nobody, have ended.
func TestEnoughOfAPackage(t *testing.T) {
	deb := archive(t, []tar.Header{{Name: "./first"}, {Name: "./rest", Typeflag: tar.TypeReg, Size: 1 << 20}})
	b, err := os.ReadFile(deb)
	if err != nil {
		t.Fatal(err)
	}
	// The archive's last member is made as long as its own tar header says.
	at := bytes.Index(b, []byte("data.tar"))
	b = append(b, make([]byte, 1<<20)...)
	copy(b[at+48:], fmt.Sprintf("%-10d", len(b)-at-60))
	if err := os.WriteFile(deb, b, 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if err := packageFiles(ctx, deb, func(_ *tar.Header, content io.Reader) error {
		stop()
		time.Sleep(10 * time.Millisecond) // dpkg-deb is killed by another goroutine
		_, err := io.Copy(io.Discard, content)
		return err
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	done := make(chan error, 1)
	go func() {
		done <- packageFiles(context.Background(), deb, func(*tar.Header, io.Reader) error { return errEnough })
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("still waiting for dpkg-deb after a minute")
	}
}
