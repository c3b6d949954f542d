package libvirttest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// PKI is an authority of a test's own, as libvirt's TLS wants one.
type PKI struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// NewPKI makes an authority.
func NewPKI(t testing.TB) *PKI {
	t.Helper()
	p := &PKI{key: newKey(t)}
	p.cert = p.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, p.key)
	return p
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sign completes a certificate of a key; the authority's own is signed by itself.
func (p *PKI) sign(t testing.TB, c *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	var err error
	if c.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		t.Fatal(err)
	}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	parent := p.cert
	if parent == nil {
		parent = c
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, p.key)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return c
}

// write writes a certificate with its key, and the authority's, into a folder.
func (p *PKI) write(t testing.TB, dir, name string, c *x509.Certificate) {
	t.Helper()
	key := newKey(t)
	c.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]pem.Block{
		name + "key.pem":  {Type: "PRIVATE KEY", Bytes: der},
		name + "cert.pem": {Type: "CERTIFICATE", Bytes: p.sign(t, c, key).Raw},
		"cacert.pem":      {Type: "CERTIFICATE", Bytes: p.cert.Raw},
	} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(&block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Client makes a folder of what a client shows.
func (p *PKI) Client(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	p.write(t, dir, "client", &x509.Certificate{Subject: pkix.Name{CommonName: "client"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return dir
}

// listen makes a server's folder, and is what its libvirtd is told of it.
func (p *PKI) listen(t testing.TB, dir string, port int) string {
	t.Helper()
	p.write(t, dir, "server", &x509.Certificate{Subject: pkix.Name{CommonName: "localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	return fmt.Sprintf(`listen_tls = 1
listen_tcp = 0
listen_addr = "127.0.0.1"
tls_port = "%d"
auth_tls = "none"
key_file = "%[2]s/serverkey.pem"
cert_file = "%[2]s/servercert.pem"
ca_file = "%[2]s/cacert.pem"
`, port, dir)
}

// listened reports whether somebody listens at a port, which libvirtd may do some time after it does at its socket. Nobody is
// connected to for that: it would be one more whom libvirtd knows.
func listened(t testing.TB, port int) bool {
	t.Helper()
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(file)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			const listens = "0A" // TCP_LISTEN, net/tcp_states.h
			if f := strings.Fields(line); len(f) > 3 && f[3] == listens && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				return true
			}
		}
	}
	return false
}

// freePort is one that nobody listens at, and that the kernel gives to nobody else who wants any: those begin at 32768
// (ip(7), ip_local_port_range).
func freePort(t testing.TB) int {
	t.Helper()
	const least, most = 20000, 32000
	for range 100 {
		port := least + mathrand.IntN(most-least)
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatalf("no port of a hundred between %d and %d is free", least, most)
	return 0
}
