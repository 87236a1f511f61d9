package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog/transport"
)

// Where a node is reached only the node itself says: it announces its addresses to the leader of shard 0, on a stream whose
// other end has proved by its certificate which node it is. No other node, no operator and no token can say it for that node:
// clients are sent to these addresses, and take their tokens there.

const (
	// announceKind is the kind of those streams; any node of the cluster may open them, one that was just taken in too.
	announceKind = "announce"
	// announceBytes bounds an announcement: three addresses.
	announceBytes = 4 << 10
	// announceEvery is how soon it is tried again at first, and announceRest after refusals.
	announceEvery = 300 * time.Millisecond
	announceRest  = 10 * time.Second
	// addressBytes bounds an address.
	addressBytes = 255
)

// announcement is the addresses under which a node says that it is reached.
type announcement struct {
	Peer string `json:"peer"` // host:port for the other nodes
	GRPC string `json:"grpc"`
	HTTP string `json:"http"` // off: it has no REST edge
}

// announced is the answer to an announcement. If no field is set, the node that was asked can
// neither enter the addresses nor name the leader: ask again later.
type announced struct {
	Done   bool   `json:"done"`
	Leader uint64 `json:"leader,omitempty"` // of shard 0, as far as the node that was asked knows: it is to be told
	Error  string `json:"error,omitempty"`
}

// awaited returns the placeholder for the peer address of a node that was added and has not
// announced one yet. It is an address in a domain that cannot exist, so that it is valid in the
// directory and can never be dialled.
func awaited(node uint64) string { return "n" + strconv.FormatUint(node, 10) + awaitedHost + ":1" }

// awaitedHost ends the host of such placeholders; .invalid is reserved for this (RFC 2606).
const awaitedHost = ".joining.invalid"

// known returns peer, or an empty text if peer is a placeholder.
func known(peer string) string {
	if host, _, err := net.SplitHostPort(peer); err == nil && strings.HasSuffix(host, awaitedHost) {
		return ""
	}
	return peer
}

// hasREST reports whether an address of the directory is that of a REST edge. Older directories
// have an empty text where newer ones have off.
func hasREST(http string) bool { return http != "" && http != off }

// addresses returns what this node announces: the addresses in its settings, else those of its
// listeners.
func (r *Running) addresses() announcement {
	own := r.o.Cluster.Own()
	a := announcement{Peer: own.Address, GRPC: cmp.Or(own.API, r.advertised(r.Address)), HTTP: off}
	if r.HTTPAddress != "" {
		a.HTTP = cmp.Or(own.HTTP, r.advertised(r.HTTPAddress))
	}
	return a
}

// is reports whether the directory has these addresses for m already.
func (a announcement) is(m *core.Member) bool {
	return m != nil && m.Peer == a.Peer && m.API == a.GRPC && (m.HTTP == a.HTTP || !hasREST(m.HTTP) && !hasREST(a.HTTP))
}

// check refuses addresses that other machines cannot dial. The address of the REST edge may be
// absent.
func (a announcement) check() error {
	for _, x := range [][2]string{{"peer", a.Peer}, {"grpc", a.GRPC}, {"http", a.HTTP}} {
		name, address := x[0], x[1]
		if name == "http" && !hasREST(address) {
			continue
		}
		host, port, err := net.SplitHostPort(address)
		if err != nil || len(address) > addressBytes || host == "" || strings.ContainsFunc(host, notOfHost) {
			return core.Invalid{Field: name, Reason: "bad_address", Message: "an address of the form host:port is wanted"}
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return core.Invalid{Field: name, Reason: "bad_address", Message: "the port must be a number of 1 to 65535"}
		}
		if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
			return core.Invalid{Field: name, Reason: "bad_address", Message: "must be an address that other machines can dial"}
		}
	}
	return nil
}

// notOfHost reports whether a character is not allowed in a host. Hosts become parts of URLs that
// clients are sent to, so nothing else may get into them.
func notOfHost(c rune) bool {
	return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune(".-:_%", c))
}

// startAnnouncing starts the goroutine that keeps this node's addresses in the directory.
// stopAnnouncing ends it and waits for it.
func (r *Running) startAnnouncing() {
	if r.peers == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	r.stopAnnouncing = func() { cancel(); <-ended }
	go func() {
		defer close(ended)
		r.announce(ctx)
	}()
}

// announce announces this node's addresses once after each start, and again whenever the directory
// has others for it. Failed tries are repeated with pauses that double up to announceRest. It logs
// the first refusal only, not every try.
func (r *Running) announce(ctx context.Context) {
	own, told := r.addresses(), false
	wait, complained := announceEvery, false
	for ctx.Err() == nil {
		moved := r.node.Moved()
		d := r.node.Members()
		// Announced, and the directory agrees, or there is none yet: wait until the members change.
		if told && (d.Version == 0 || own.is(d.OfNode(r.o.Cluster.Node))) {
			select {
			case <-moved:
			case <-ctx.Done():
			}
			continue
		}
		err := r.asks.announceOnce(ctx, own)
		if err == nil {
			told, wait, complained = true, announceEvery, false
			r.awaitMove(ctx, moved, announceEvery) // this node learns of it in a moment
			continue
		}
		if _, refused := errors.AsType[refusal](err); refused && !complained && ctx.Err() == nil {
			complained = true
			r.o.Logger.Warn("the addresses of this node are not announced yet", "peer", own.Peer, "grpc", own.GRPC, "http", own.HTTP, "error", err)
		}
		_ = r.pause(ctx, wait) // the loop sees its end
		wait = min(2*wait, announceRest)
	}
}

// awaitMove waits until moved is closed, d is over, or ctx ends.
func (r *Running) awaitMove(ctx context.Context, moved <-chan struct{}, d time.Duration) {
	timer := r.o.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-moved:
	case <-timer.C():
	case <-ctx.Done():
	}
}

// announceOnce gives this node's addresses to the leader of shard 0. If this node does not know who
// leads, it asks all members in turn; each names the leader that it knows, who is asked next. No
// node is asked twice. A refusal by the leader is a refusal; any other error may pass.
func (c *coordinator) announceOnce(ctx context.Context, own announcement) error {
	ctx, cancel := context.WithTimeout(ctx, changeWait)
	defer cancel()
	var ask, asked []uint64
	// The known leader is asked first, then every member in order.
	if leader := c.node.Standings()[0].Leader; leader != 0 {
		ask = append(ask, leader)
	}
	for _, m := range c.node.Members().Members {
		ask = append(ask, m.Node)
	}
	err := errors.New("no member is known")
	for len(ask) > 0 && ctx.Err() == nil {
		id := ask[0]
		if ask = ask[1:]; slices.Contains(asked, id) {
			continue
		}
		asked = append(asked, id)
		var a announced
		if id == c.o.Cluster.Node {
			a = c.takeAnnouncement(ctx, id, own)
		} else if a, err = c.announceTo(ctx, id, own); err != nil {
			continue
		}
		switch {
		case a.Done:
			return nil
		case a.Error != "":
			return refusal{text: fmt.Sprintf("node %d: %s", id, a.Error)}
		case a.Leader != 0:
			ask = append([]uint64{a.Leader}, ask...)
		}
		err = errors.New("no node leads shard 0")
	}
	return err
}

// announceTo sends the addresses to one node and returns its answer.
func (c *coordinator) announceTo(ctx context.Context, id uint64, own announcement) (a announced, err error) {
	ctx, cancel := context.WithTimeout(ctx, changeWait)
	defer cancel()
	s, err := c.peers.OpenStream(ctx, transport.NodeID(id), announceKind)
	if err != nil {
		return a, err
	}
	err = exchange(ctx, s, own, &a)
	return a, err
}

// serveAnnouncement answers a node that announces its addresses. The transport has proved from its
// certificate which node it is, so from can be trusted, and only the addresses of that node can be
// set.
func (c *coordinator) serveAnnouncement(from transport.NodeID, s transport.Stream) {
	if !c.ready.Load() || s.SetDeadline(c.o.Clock.Wall().Add(changeWait+askWait)) != nil {
		return // it is asked again
	}
	var a announcement
	text, err := io.ReadAll(io.LimitReader(s, announceBytes))
	if err != nil || json.Unmarshal(text, &a) != nil {
		return // the node that asks sees that nothing was answered
	}
	ctx, cancel := context.WithTimeout(context.Background(), changeWait)
	defer cancel()
	if text, err = json.Marshal(c.takeAnnouncement(ctx, uint64(from), a)); err != nil {
		return
	}
	if _, err := s.Write(text); err == nil {
		_ = s.CloseWrite() // the node that asked is gone if it fails
	}
}

// takeAnnouncement enters the addresses of a node into the directory, if this node leads shard 0;
// otherwise it answers with the leader. Addresses that the directory already has need no entry.
func (c *coordinator) takeAnnouncement(ctx context.Context, from uint64, a announcement) announced {
	if err := a.check(); err != nil {
		return announced{Error: err.Error()}
	}
	if leader := c.node.Standings()[0].Leader; leader != c.o.Cluster.Node {
		return announced{Leader: leader}
	}
	if d := c.node.Members(); d.Version > 0 && a.is(d.OfNode(from)) {
		return announced{Done: true}
	}
	op := &core.MemberChange{Do: core.MemberSet, Node: from, Peer: a.Peer, API: a.GRPC, HTTP: cmp.Or(a.HTTP, off)}
	d, err := c.node.ChangeMember(ctx, op)
	switch {
	case leadsNot(err):
		return announced{} // another node does, now or soon
	case err != nil:
		return announced{Error: err.Error()}
	}
	c.o.Logger.Info("a node has announced its addresses", "node", from, "peer", a.Peer, "grpc", a.GRPC, "http", a.HTTP, "version", d.Version)
	return announced{Done: true}
}
