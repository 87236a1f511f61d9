package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Sizes of the chunks that messages arrive in. Several appends fit into one: a message that does not fit into the rest of
// a chunk is moved to the next.
const (
	controlChunk = 16 << 10
	bulkChunk    = 1024 << 10
)

// acceptPause is how long nothing is accepted after accepting failed, as it does when there are no descriptors left.
const acceptPause = 100 * time.Millisecond

// lingerBytes is how much of what a refused connection still sends is read, so that closing does not take back the
// refusal: data that is left unread makes the system reset the connection.
const lingerBytes = 64 << 10

// accept takes connections in until the transport ends. Each gets a goroutine, if there is room for
// one more that greets.
func (t *Transport) accept(lis net.Listener) {
	for {
		raw, err := lis.Accept()
		switch {
		case t.ctx.Err() != nil:
			if err == nil {
				_ = raw.Close() // the transport has ended: no goroutine would serve it
			}
			return
		case err != nil:
			if t.notes.fresh("accept", 0, 0) {
				t.log.Error("cannot accept connections of peers", "error", err)
			}
			t.pause(t.ctx, nil, acceptPause)
			continue
		}
		c := newConn(raw)
		host := hostOf(raw.RemoteAddr().String())
		g := t.pending.accepted(c, host, t.isMember(host))
		if g == nil {
			c.close(errCrowded)
			continue
		}
		t.work.Go(func() { t.serve(c, g) })
	}
}

// hostOf is an address without its port.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

// isMember reports whether a peer is known to be at a host: by its address, or by a connection that was greeted.
func (t *Transport) isMember(host string) bool {
	for _, p := range *t.peers.Load() {
		address, _ := p.where()
		if seen := p.seen.Load(); hostOf(address) == host || seen != nil && *seen == host {
			return true
		}
	}
	return false
}

// serve greets a connection and reads it until it ends.
//
// A connection is pending until its greeting has ended. Then it is one of a peer's, until it ends;
// join has put it there.
func (t *Transport) serve(c *conn, g *attempt) {
	p, h, err := t.greet(c)
	if err != nil {
		t.linger(c)
	}
	t.pending.leave(g)
	if err != nil {
		c.close(err)
		return
	}
	defer t.done(p, c)
	if h != nil {
		t.stats.streamsAccepted.Add(1)
		s := newStream(c, p)
		h(c.from, s)
		_ = s.Close() // returns no error
		return
	}
	c.close(c.cause(t.receive(c, p.link(c.class))))
	if p.ctx.Err() == nil && t.notes.fresh("ended", p.id, 0) {
		t.log.Info("connection of peer ended", "peer", p.id, "class", c.class, "error", c.err)
	}
}

// linger ends what this side says and waits for the other to hang up. It waits a while at most: the
// connection is still pending, and the keeper ends it.
func (t *Transport) linger(c *conn) {
	if c.tls != nil {
		_ = c.tls.CloseWrite() // fails if the handshake did: then an alert was sent
	}
	if c.wire.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, c.wire, lingerBytes)
	}
}

// greet takes a connection in, or refuses it. With a stream comes its handler.
//
// The order: TLS; the hello; the judgement, which makes a welcome connection one of the peer's; the
// answer; and a last look at the certificates, which may have been exchanged meanwhile. Whatever
// fails after the judgement takes the connection off the peer again.
func (t *Transport) greet(c *conn) (*peer, StreamHandler, error) {
	creds := t.creds.Load()
	if creds != nil {
		c.tls = tls.Server(c.wire, creds.server(t.o.Clock.Wall))
		if err := c.tls.Handshake(); err != nil {
			return nil, nil, t.strangers(c, err)
		}
	}
	h, err := readHello(c)
	if err != nil {
		if errors.Is(err, errMalformed) {
			t.stats.refuse(Malformed)
		}
		return nil, nil, t.strangers(c, err)
	}
	c.class, c.from, c.to, c.boot, c.formats = h.class, h.from, t.o.Node, h.boot, h.formats
	if h.objection != 0 {
		err := &RefusedError{Reason: h.objection, Remote: true, Detail: "the peer does not accept this node's certificate"}
		t.refused(c, h.cluster, h.from, err)
		return nil, nil, err
	}
	p, serve, err := t.judge(c, &h)
	a := answer{
		version: min(versionMax, h.versionMax), versionMin: versionMin, versionMax: versionMax, reason: refusedFor(err),
		cluster: t.o.Cluster, node: t.o.Node, boot: t.boot, formats: t.formats(), shards: uint32(t.o.Shards),
	}
	if err != nil {
		t.stats.refuse(a.reason)
		t.refused(c, h.cluster, h.from, err)
		_, _ = c.Write(a.encode()) // the refusal stands, heard or not
		return nil, nil, err
	}
	if _, err := c.Write(a.encode()); err != nil {
		t.done(p, c)
		return nil, nil, c.cause(err)
	}
	if err := t.stillTrusted(c, creds, x509.ExtKeyUsageClientAuth); err != nil {
		t.done(p, c)
		return nil, nil, err
	}
	return p, serve, nil
}

// judge says whether a hello is welcome. Its error is a *RefusedError. A connection that is welcome
// is one of the peer's. The first check that fails gives the reason.
func (t *Transport) judge(c *conn, h *hello) (*peer, StreamHandler, error) {
	no := func(r Reason, format string, args ...any) (*peer, StreamHandler, error) {
		return nil, nil, &RefusedError{Reason: r, Detail: t.between(h.cluster, h.from) + ": " + fmt.Sprintf(format, args...)}
	}
	switch {
	case h.versionMin > versionMax || h.versionMax < versionMin:
		return no(UnsupportedVersion, "the peer speaks versions %d to %d, this node %d to %d", h.versionMin, h.versionMax, versionMin, versionMax)
	case h.cluster != t.o.Cluster:
		return no(WrongCluster, "the peer belongs to cluster %s", h.cluster)
	case h.from == t.o.Node && h.boot == t.boot:
		return no(Self, "the address of node %s is this node's own", h.to)
	case h.to != t.o.Node && !(h.to == 0 && h.class == stream):
		return no(WrongNode, "the peer wants node %s", h.to)
	case c.tls != nil && !names(c.tls.ConnectionState().PeerCertificates[0], h.cluster, h.from):
		return no(WrongIdentity, "the certificate names %q, not %s", claims(c.tls.ConnectionState().PeerCertificates), URI(h.cluster, h.from))
	case c.tls != nil && !fit(c.tls.ConnectionState().PeerCertificates[0]):
		return no(UntrustedCertificate, "%s", unfit)
	case h.from == t.o.Node:
		return no(DuplicateNode, "process %s has this node's id", hex.EncodeToString(h.boot[:4]))
	case h.formats.Min > t.formats().Max:
		return no(NewerFormat, "the peer writes formats %d to %d, this node %d to %d", h.formats.Min, h.formats.Max, t.formats().Min, t.formats().Max)
	case h.formats.Max < t.formats().Min:
		return no(OlderFormat, "the peer writes formats %d to %d, this node %d to %d", h.formats.Min, h.formats.Max, t.formats().Min, t.formats().Max)
	}
	if differ(h.shards, t.o.Shards) {
		return no(OtherShards, "the peer hosts %d shards, this node %d", h.shards, t.o.Shards)
	}
	if h.replica != 0 && t.o.Gone != nil && t.o.Gone(h.from, h.replica) {
		return no(Removed, "replica %d of node %s was removed from the cluster", h.replica, h.from)
	}
	p := t.peer(h.from)
	if c.class == stream {
		if serve := t.openHandler(h.kind); serve != nil && t.ctx.Err() == nil {
			return t.admit(c, p, serve)
		}
	}
	switch {
	case h.to == 0:
		return no(WrongNode, "no node is wanted")
	case p == nil:
		return no(UnknownPeer, "node %s is not a peer of this node", h.from)
	}
	var serve StreamHandler
	switch c.class {
	case Control, Bulk, Parts:
	case stream:
		if serve = t.streamHandler(h.kind); serve == nil {
			return no(UnknownStream, "kind %q", h.kind)
		}
	case forward:
		if serve = t.forwardHandler(); serve == nil {
			return no(UnknownStream, "this node does not serve requests of clients now")
		}
	default:
		return no(Malformed, "class %d", uint8(c.class))
	}
	if t.ctx.Err() != nil {
		return no(Closing, "this node is about to end")
	}
	return p, serve, p.join(c)
}

// between names both nodes of a connection, this one and the other as it names itself. Ids of both
// clusters are in it, because most refusals are a mistake in one of them.
func (t *Transport) between(cluster ClusterID, node NodeID) string {
	if cluster == t.o.Cluster {
		return fmt.Sprintf("this is node %s, the peer is node %s of the same cluster", t.o.Node, node)
	}
	return fmt.Sprintf("this is node %s of cluster %s, the peer is node %s of cluster %s", t.o.Node, t.o.Cluster, node, cluster)
}

// differ says whether two nodes host different numbers of shards, as far as both say.
func differ(theirs uint32, own int) bool {
	return theirs != 0 && own != 0 && int64(theirs) != int64(own)
}

// stillTrusted says whether a connection that was greeted while the certificate files changed is
// still to be had. The certificates are compared again only if the authority is another one.
func (t *Transport) stillTrusted(c *conn, used *credentials, use x509.ExtKeyUsage) error {
	now := t.creds.Load()
	if now == used || now.cas == used.cas {
		return nil
	}
	return now.verify(c.tls.ConnectionState().PeerCertificates, identity{t.o.Cluster, c.peer()}, use, t.o.Clock.Wall())
}

// strangers notes a connection that ended before its hello: only its certificate claims which node it was.
func (t *Transport) strangers(c *conn, err error) error {
	err = c.cause(err)
	t.stats.handshakeFailures.Add(1)
	kind, attrs := "greeting", []any{"address", c.wire.RemoteAddr().String(), "error", err}
	if bad, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		kind, attrs = "certificate", append(attrs, "claims", claims(bad.UnverifiedCertificates))
	}
	if t.ctx.Err() != nil || !t.notes.fresh(kind, 0, 0) {
		return err
	}
	t.log.Warn("refused a connection before its greeting", attrs...)
	return err
}

// refused logs a refusal, by whom it may be, with the ids of both nodes.
func (t *Transport) refused(c *conn, cluster ClusterID, node NodeID, err error) {
	reason := refusedFor(err)
	if t.ctx.Err() != nil || !t.notes.fresh("refused", node, reason) {
		return
	}
	t.log.Warn("connection refused", "reason", reason.String(), "peer", node, "peer_cluster", cluster, "class", c.class,
		"address", c.wire.RemoteAddr().String(), "dialled", c.outbound, "error", err)
}

// receive hands over what arrives on a connection until it ends, and returns why it did. Pings are
// answered here. A connection carries messages one way, so anything else is not valid.
func (t *Transport) receive(c *conn, l *link) error {
	in := frameReader{r: c, max: t.o.MessageBytes, chunk: bulkChunk}
	if c.class == Control {
		in.chunk = controlChunk
	}
	var pong []byte
	for {
		f, err := in.next()
		if err != nil {
			return t.broken(c, err)
		}
		switch f.kind {
		case kindMessage:
			for _, n := range l.counts {
				n.received.Add(1)
				n.receivedBytes.Add(uint64(len(f.payload)))
			}
			c.busy.Store(true)
			t.handler(c.from, f.shard, f.payload)
			c.busy.Store(false)
		case kindPing:
			pong = append(appendHead(pong[:0], f.shard, kindPong, f.payload), f.payload...)
			if _, err := c.Write(pong); err != nil {
				return fmt.Errorf("write: %w", err)
			}
		default:
			return t.broken(c, fmt.Errorf("%w: kind %d on a connection that was accepted", ErrCorrupt, f.kind))
		}
	}
}

// broken counts and logs a peer's bytes that make no sense; other ends of a connection pass. A
// connection that only ended is not an error of the peer.
func (t *Transport) broken(c *conn, err error) error {
	if !errors.Is(err, ErrCorrupt) {
		return err
	}
	t.stats.corrupt.Add(1)
	if t.notes.fresh("corrupt", c.peer(), 0) {
		t.log.Error("a peer's bytes make no sense: connection closed", "peer", c.peer(), "class", c.class, "error", err)
	}
	return err
}

// dial connects to a peer and greets it. The connection is one of the peer's when it returns.
//
// ctx, the removal of the peer and the two time limits each end the attempt. If the peer got
// another address meanwhile, join refuses the connection.
func (t *Transport) dial(ctx context.Context, p *peer, class Class, kind string) (*conn, error) {
	address, _ := p.where()
	if address == "" {
		return nil, fmt.Errorf("dial node %s: %w", p.id, errNoAddress)
	}
	trying, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.ctx, func() { cancel(context.Cause(p.ctx)) })()
	g := t.pending.enter(t.o.DialTimeout, cancel)
	raw, err := t.o.Net.Dial(trying, address)
	t.pending.leave(g)
	if err != nil {
		if why := context.Cause(trying); why != nil {
			err = why
		}
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	c := newConn(raw)
	c.class, c.outbound, c.from, c.to, c.address = class, true, t.o.Node, p.id, address
	g = t.pending.enter(t.o.HandshakeTimeout, c.close)
	stop := context.AfterFunc(trying, func() { c.close(context.Cause(trying)) })
	err = t.introduce(c, p, kind)
	t.pending.leave(g)
	if !stop() && err == nil {
		err = context.Cause(trying)
		p.leave(c)
	}
	if err != nil {
		err = c.cause(err)
		c.close(err)
		return nil, fmt.Errorf("greet %s: %w", address, err)
	}
	return c, nil
}

// introduce says hello on a connection to p, and makes it one of the peer's if both sides agree.
// The dialling side judges the peer's certificate before it says hello. If it refuses the
// certificate, the hello says so, and the connection ends.
func (t *Transport) introduce(c *conn, p *peer, kind string) error {
	h := hello{
		versionMin: versionMin, versionMax: versionMax, cluster: t.o.Cluster, from: t.o.Node, to: p.id, boot: t.boot,
		class: c.class, formats: t.formats(), kind: kind, shards: uint32(t.o.Shards), replica: t.replica.Load(),
	}
	creds := t.creds.Load()
	if creds != nil {
		c.tls = tls.Client(c.wire, creds.client(t.o.Clock.Wall))
		if err := c.tls.Handshake(); err != nil {
			return err
		}
		chain := c.tls.ConnectionState().PeerCertificates
		err := creds.verify(chain, identity{t.o.Cluster, p.id}, x509.ExtKeyUsageServerAuth, t.o.Clock.Wall())
		if err != nil {
			h.objection = refusedFor(err)
			_, _ = c.Write(h.encode()) // the refusal stands, heard or not
			t.stats.refuse(h.objection)
			t.refused(c, t.o.Cluster, p.id, fmt.Errorf("%w (its certificate names %q)", err, claims(chain)))
			return err
		}
	}
	if _, err := c.Write(h.encode()); err != nil {
		return err
	}
	a, err := readAnswer(c)
	if err != nil {
		if errors.Is(err, errMalformed) {
			t.stats.refuse(Malformed)
			t.refused(c, t.o.Cluster, p.id, err)
		}
		return fmt.Errorf("no answer: %w", err) // TLS tells here that the peer does not accept this node's certificate
	}
	if err = t.agree(c, p, &a); err != nil {
		if refusedFor(err) != 0 {
			t.refused(c, a.cluster, a.node, err)
		}
		return err
	}
	if err := t.stillTrusted(c, creds, x509.ExtKeyUsageServerAuth); err != nil {
		p.leave(c)
		return err
	}
	return nil
}

// agree says whether an answer is a welcome by the node that was wanted. Its error is a
// *RefusedError, or errMoved. An answer of a node that refuses is believed as far as its reason;
// what it says of itself is compared only in a welcome.
func (t *Transport) agree(c *conn, p *peer, a *answer) error {
	err := &RefusedError{Detail: t.between(a.cluster, a.node)}
	switch a.reason {
	case 0:
	case NewerFormat, OlderFormat:
		err.Detail += fmt.Sprintf(": the peer writes formats %d to %d, this node %d to %d", a.formats.Min, a.formats.Max, t.formats().Min, t.formats().Max)
	case OtherShards:
		err.Detail += fmt.Sprintf(": the peer hosts %d shards, this node %d", a.shards, t.o.Shards)
	case WrongNode:
		err.Detail += fmt.Sprintf(": node %s was wanted at %s", p.id, c.address)
	}
	switch {
	case a.reason != 0:
		err.Reason, err.Remote = a.reason, true
		if a.reason == Removed && t.o.OnRemoved != nil {
			t.o.OnRemoved()
		}
		if a.reason == UnknownPeer && p.id != 0 && t.o.OnUnknown != nil {
			t.o.OnUnknown(p.id)
		}
		return err
	case a.cluster != t.o.Cluster:
		err.Reason = WrongCluster
	case p.id == 0 && (a.node == 0 || c.tls != nil && !names(c.tls.ConnectionState().PeerCertificates[0], a.cluster, a.node)):
		err.Reason = WrongIdentity
	case a.node != p.id && p.id != 0:
		err.Reason = WrongNode
		err.Detail += fmt.Sprintf(": node %s was wanted at %s", p.id, c.address)
	case a.version < versionMin || a.version > versionMax:
		err.Reason = UnsupportedVersion
	case differ(a.shards, t.o.Shards):
		err.Reason = OtherShards
		err.Detail += fmt.Sprintf(": the peer hosts %d shards, this node %d", a.shards, t.o.Shards)
	default:
		c.boot, c.formats = a.boot, a.formats
		joined := p.join(c)
		if r := refusedFor(joined); r != 0 {
			t.stats.refuse(r)
		}
		return joined
	}
	t.stats.refuse(err.Reason)
	return err
}
