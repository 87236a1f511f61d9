package transport_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/env/envtest"
	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/replog/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var testCluster = transport.ClusterID{0xc1, 0x05, 0x7e, 0x12}

// rig has what nodes share: in a bubble of synctest a network and a clock of its own.
type rig struct {
	t    testing.TB
	net  *envtest.Net // nil: the machine's
	disk *replogtest.Disk
	ca   *authority // nil: plain text
}

func newRig(t testing.TB) *rig {
	return &rig{t: t, net: envtest.NewNet(), disk: replogtest.NewDisk()}
}

func newTLSRig(t testing.TB) *rig {
	r := newRig(t)
	r.ca = newAuthority(t)
	return r
}

// node is one node of a test.
type node struct {
	*transport.Transport
	id   transport.NodeID
	o    transport.Options
	logs *logs
	in   *inbox
}

// address is where a node of the rig's own network listens.
func address(id transport.NodeID) string { return fmt.Sprintf("127.0.0.1:%d", 7000+id) }

// options are a node's, as start takes them.
func (r *rig) options(id transport.NodeID) transport.Options {
	o := transport.Options{Cluster: testCluster, Node: id, Listen: "127.0.0.1:0", Plain: true}
	if r.net != nil {
		o.Net, o.Clock, o.Listen = r.net, replogtest.NewClock(), address(id)
		o.Rand = env.NewSeededRand(uint64(time.Now().UnixNano()) + uint64(id))
	}
	if r.ca != nil {
		o.Plain, o.FS = false, r.disk
		o.TLS = r.files(id, r.ca, certificate{})
	}
	return o
}

// files writes a node's certificate files.
func (r *rig) files(id transport.NodeID, ca *authority, c certificate) *transport.Files {
	r.t.Helper()
	if c.uri == "" {
		c.uri = transport.URI(testCluster, id)
	}
	f := &transport.Files{CA: fmt.Sprintf("ca-%d", id), Cert: fmt.Sprintf("cert-%d", id), Key: fmt.Sprintf("key-%d", id)}
	cert, key := ca.issue(r.t, c)
	for name, b := range map[string][]byte{f.CA: ca.pem, f.Cert: cert, f.Key: key} {
		r.write(name, b)
	}
	return f
}

func (r *rig) write(name string, b []byte) {
	r.t.Helper()
	if err := replogtest.WriteFile(r.disk, name, b); err != nil {
		r.t.Fatal(err)
	}
}

// start runs a node. What it gets goes to its inbox, unless h is given.
func (r *rig) start(o transport.Options, h transport.Handler) *node {
	r.t.Helper()
	n := &node{id: o.Node, o: o, logs: new(logs), in: newInbox()}
	o.Logger = slog.New(slog.NewTextHandler(n.logs, nil))
	var err error
	if n.Transport, err = transport.New(o); err != nil {
		r.t.Fatal(err)
	}
	if h == nil {
		h = n.in.take
	}
	if err := n.Start(h); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { n.Close() })
	return n
}

// pair runs nodes 1 and 2 that know each other.
func (r *rig) pair() (a, b *node) {
	r.t.Helper()
	a, b = r.start(r.options(1), nil), r.start(r.options(2), nil)
	r.join(a, b)
	return a, b
}

// join makes two nodes know each other.
func (r *rig) join(a, b *node) {
	r.t.Helper()
	for _, err := range []error{a.SetPeer(b.id, b.Addr().String()), b.SetPeer(a.id, a.Addr().String())} {
		if err != nil {
			r.t.Fatal(err)
		}
	}
	if r.net != nil {
		pass(200 * time.Millisecond) // the first may have dialled before the second knew it
	}
}

// pass lets virtual time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// eventually waits for what real nodes do in real time.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	late := time.After(30 * time.Second)
	for !done() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}

func (n *node) peer(t testing.TB, id transport.NodeID) transport.PeerStatus {
	t.Helper()
	for _, p := range n.Status() {
		if p.ID == id {
			return p
		}
	}
	t.Fatalf("node %s knows no node %s", n.id, id)
	return transport.PeerStatus{}
}

// connected says whether a node has all connections with a peer.
func (n *node) connected(t testing.TB, id transport.NodeID) bool {
	t.Helper()
	p := n.peer(t, id)
	for _, l := range []transport.LinkStatus{p.Control, p.Bulk, p.Parts} {
		if !l.Connected || !l.Inbound {
			return false
		}
	}
	return true
}

func (n *node) send(t testing.TB, to transport.NodeID, class transport.Class, text string) {
	t.Helper()
	if !n.Send(to, class, 3, []byte(text)) {
		t.Errorf("node %s could not send %q to node %s", n.id, text, to)
	}
}

// inbox keeps what a node got.
type inbox struct {
	mu  sync.Mutex
	got []string
}

func newInbox() *inbox { return &inbox{} }

func (i *inbox) take(from transport.NodeID, shard core.ShardID, msg []byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.got = append(i.got, fmt.Sprintf("%s/%d %s", from, shard, msg))
}

// all returns what came since it was last called.
func (i *inbox) all() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	out := i.got
	i.got = nil
	return out
}

// logs keeps what a node logged.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// line returns the first line with all words, or all there is if none has.
func (l *logs) line(words ...string) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		found := true
		for _, w := range words {
			found = found && strings.Contains(line, w)
		}
		if found {
			return line, true
		}
	}
	return l.b.String(), false
}

func (n *node) wantLog(t testing.TB, words ...string) {
	t.Helper()
	if text, ok := n.logs.line(words...); !ok {
		t.Errorf("node %s logged no line with %q, but:\n%s", n.id, words, text)
	}
}

// authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// certificate is what is special about one.
type certificate struct {
	uri   string
	end   time.Duration      // from now; default a year
	begin time.Duration      // default an hour ago
	uses  []x509.ExtKeyUsage // default both of a node; empty: the certificate names no use
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return &authority{cert: c, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func (a *authority) issue(t testing.TB, c certificate) (cert, key []byte) {
	t.Helper()
	u, err := url.Parse(c.uri)
	if err != nil {
		t.Fatal(err)
	}
	if c.end == 0 {
		c.end = 365 * 24 * time.Hour
	}
	if c.begin == 0 {
		c.begin = -time.Hour
	}
	use := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	if c.uses != nil {
		use = c.uses
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(c.begin), NotAfter: time.Now().Add(c.end),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: use, URIs: []*url.URL{u},
	}, a.cert, &private.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

// raw connects to a node without a greeting.
func (r *rig) raw(n *node) net.Conn {
	r.t.Helper()
	c, err := n.o.Net.Dial(context.Background(), n.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c
}

// greet says hello on a raw connection, as node 9 unless the greeting says otherwise, and returns the answer.
func greet(t testing.TB, c net.Conn, h transport.Hello) transport.Reason {
	t.Helper()
	if h.VersionMax == 0 {
		h.VersionMin, h.VersionMax = 1, 1
	}
	if h.Cluster == (transport.ClusterID{}) {
		h.Cluster = testCluster
	}
	if h.From == 0 {
		h.From = 9
	}
	if h.Class == 0 {
		h.Class = transport.Control
	}
	if h.Formats == (transport.Formats{}) {
		h.Formats = transport.Formats{Min: 1, Max: 1}
	}
	if _, err := c.Write(transport.EncodeHello(h)); err != nil {
		t.Fatal(err)
	}
	reason, err := transport.ReadAnswer(c)
	if err != nil {
		t.Fatal(err)
	}
	return reason
}

// closed says whether the other side of a connection in a bubble has hung up, after what it may still say: not only
// after a time.
func closed(c net.Conn) bool {
	before := time.Now()
	_, _ = io.Copy(io.Discard, c) // any end will do
	return time.Since(before) == 0
}

// rigs are the two ways to connect.
func rigs() map[string]func(testing.TB) *rig {
	return map[string]func(testing.TB) *rig{"plain": newRig, "TLS": newTLSRig}
}
