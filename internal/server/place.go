package server

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/node"
	"github.com/millrace/millrace/internal/replog"
	"github.com/millrace/millrace/internal/replog/transport"
)

// How a node with a new data directory finds its place. One that is to join asks a member, with its token. One whose
// settings name its peers may be part of a new cluster, or have lost its data: then nothing may come from it under its old
// replica id, which has voted, so it asks the others before it begins, and comes back under another id if they know it.

const (
	// placeKind is the kind of the streams on which that is asked; any node of the cluster may open them.
	placeKind = "place"
	// placeEvery is how often it is asked again.
	placeEvery = 300 * time.Millisecond
	// placeWait bounds one question.
	placeWait = 10 * time.Second
)

// placeQuery is what a node asks that looks for its place: what do you know of me (meet), admit me
// (join), or admit me again without my data (rejoin).
type placeQuery struct {
	// meet, join or rejoin.
	Do string `json:"do"`
	// Names the data directory of the node that asks.
	Store core.StoreID  `json:"store"`
	Token core.JoinHash `json:"token,omitzero"`
	Name  string        `json:"name,omitempty"`
	// The addresses that the node announces. The leader enters them only if it is asked directly.
	Peer string `json:"peer,omitempty"`
	API  string `json:"api,omitempty"`
	HTTP string `json:"http,omitempty"`
}

// What a node says to meet.
const (
	meetNew   = "new"   // it has nothing of a cluster's life itself
	meetOpen  = "open"  // the cluster knows no data directory of that node
	meetSame  = "same"  // the cluster knows this very directory
	meetLost  = "lost"  // the cluster knows another directory of that node, or has heard of it without knowing which it has
	meetGone  = "gone"  // the node is not a member any more
	meetBlind = "blind" // it cannot tell now
)

// placed is the answer to a placeQuery: Meet to meet, Dir to the others, or an error.
type placed struct {
	Meet  string `json:"meet,omitempty"`
	Dir   []byte `json:"dir,omitempty"` // the directory of members
	Error string `json:"error,omitempty"`
	Wrong bool   `json:"wrong,omitempty"` // asking again gets the same
}

// replica returns the id of the node's replicas in the logs.
func (m Member) replica() uint64 {
	if m.Replica != 0 {
		return m.Replica
	}
	return m.Node
}

// startMembers returns the members that a node knows when it starts, before it has read its replica
// of the directory.
func (o *Options) startMembers(own Member) (out []JoinedMember) {
	if own.Joined {
		return own.Members
	}
	for _, p := range o.Cluster.Peers {
		out = append(out, JoinedMember{Replica: p.ID, Node: p.ID, Name: fmt.Sprint("n", p.ID), Peer: p.Address, API: p.API, HTTP: p.HTTP})
	}
	return out
}

// placeNode sets the options of the node that say who it is and who the others are. It does nothing
// on a single-node server.
func (r *Running) placeNode(fsys env.FS, o *node.Options, own Member) error {
	if r.peers == nil {
		return nil
	}
	var err error
	if o.StoreID, err = r.storeID(); err != nil {
		return err
	}
	o.Replica, o.Node, o.Joining, o.Network = own.replica(), r.o.Cluster.Node, own.Joined, peers{r.peers}
	o.PeersVersion = own.Version
	a := r.addresses()
	if o.Address, o.PeerAddress = a.GRPC, a.Peer; hasREST(a.HTTP) {
		o.HTTP = a.HTTP
	}
	for _, m := range r.o.startMembers(own) {
		if m.Node == r.o.Cluster.Node {
			continue
		}
		o.Peers = append(o.Peers, node.Peer{Replica: m.Replica, Node: m.Node, Name: m.Name, Peer: m.Peer, Address: m.API, HTTP: m.HTTP})
	}
	o.OnMembers = r.setPeers
	o.OnRemoved = func() {
		if err := r.remember(fsys, func(m *Member) { m.Removed = true }); err != nil {
			r.o.Logger.Error("the node was removed; that could not be kept", "error", err)
		}
	}
	return nil
}

// storeID returns the id of the data directory, which its identity determines. The cluster
// remembers which directory each node has.
func (r *Running) storeID() (id core.StoreID, err error) {
	d := r.dir.Identity()
	b, err := hex.DecodeString(d.Node + d.Cluster)
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("identity of the data directory: %q, %q", d.Node, d.Cluster)
	}
	return core.StoreID(b), nil
}

// advertised returns the address at which others reach a listener. If it listens on all addresses
// of the machine, the host is that of the peers' address.
func (r *Running) advertised(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		if own, _, err := net.SplitHostPort(r.o.Cluster.Own().Address); err == nil {
			host = own
		}
	}
	return net.JoinHostPort(host, port)
}

// setPeers makes the transport's peers those in the list, and only those. The node calls it when
// the members change. If this node's own settings have an address for a peer, that one is kept:
// nodes may see each other under different addresses.
func (r *Running) setPeers(list []core.Member) {
	wanted := make(map[transport.NodeID]bool)
	for _, m := range list {
		id := transport.NodeID(m.Node)
		wanted[id] = true
		if m.Node == r.o.Cluster.Node || m.Peer == "" || r.o.Cluster.Names(m.Node) {
			continue
		}
		if err := r.peers.SetPeer(id, known(m.Peer)); err != nil {
			r.o.Logger.Warn("peer", "node", m.Node, "address", m.Peer, "error", err)
		}
	}
	for _, p := range r.peers.Status() {
		if !wanted[p.ID] {
			r.peers.RemovePeer(p.ID)
		}
	}
}

// gone reports whether a replica was removed, so that the transport refuses its node.
func (r *Running) gone(_ transport.NodeID, replica uint64) bool {
	n := r.running.Load()
	return n != nil && n.Gone(replica)
}

// refusedAsRemoved ends this node if a member refuses it as removed: that happened while it did not
// run.
func (r *Running) refusedAsRemoved() {
	if n := r.running.Load(); n != nil {
		n.Removed()
	}
}

// findPlace finds out who a node with a new data directory is, and returns what the directory is to
// remember.
//
//   - With the setting join it asks that member to admit it, under its token.
//   - With peers in the settings, either the cluster is new, or this node has lost its data. Then
//     its old replica has voted, and must not come back with an empty log: it could vote again and
//     undo a decision. So it asks the peers until the answers decide which it is.
//   - A cluster of one node needs no question.
func (r *Running) findPlace(ctx context.Context, own Member) (Member, error) {
	c := &r.o.Cluster
	switch {
	case c.Join != "":
		return r.join(ctx, own, c.Join, "join", joinHash(c.Token))
	case c.Enabled() && len(c.Peers) == 0:
		return own, fmt.Errorf("peers: this node, %d, is not among them; a node that is to be taken in names a member with join", c.Node)
	case len(c.Peers) < 2:
		return own, nil
	}
	for {
		verdict, address, err := r.meet(ctx)
		if err != nil {
			return own, fmt.Errorf("find out whether the cluster runs already: %w", err)
		}
		// open and same: the node begins, or goes on, under its own number. gone: it was removed.
		// lost: it must come back under another replica id. Anything else does not decide yet.
		switch verdict {
		case meetOpen, meetSame:
			return own, nil
		case meetGone:
			return own, &node.RemovedError{Node: c.Node, Replica: c.Node}
		case meetLost:
			return r.rejoin(ctx, own, address)
		}
		if err := r.pause(ctx, placeEvery); err != nil {
			return own, fmt.Errorf("find out whether the cluster runs already: %w", err)
		}
	}
}

// known asks a member what it knows of this node's data directory; meetBlind if it cannot be asked.
func (r *Running) known(ctx context.Context, address string) string {
	store, err := r.storeID()
	if err != nil {
		return meetBlind
	}
	a, err := r.askPlace(ctx, address, placeQuery{Do: "meet", Store: store})
	if err != nil {
		return meetBlind
	}
	return a.Meet
}

// rejoin asks a member to admit this node again, under another replica id, after it lost its data.
func (r *Running) rejoin(ctx context.Context, own Member, address string) (Member, error) {
	r.o.Logger.Warn("the cluster knows another data directory of this node: it comes back under another replica id")
	return r.join(ctx, own, address, "rejoin", core.JoinHash{})
}

// meet asks all peers at the same time what they know of this node. One peer that knows is enough,
// and that the data was lost outweighs other answers. If no peer knows and more than half of the
// nodes, with this one, are new, the cluster is new. An empty verdict means: ask again. never is
// set if a node refuses this program as too old, which no waiting changes.
func (r *Running) meet(ctx context.Context) (verdict, address string, never error) {
	store, err := r.storeID()
	if err != nil {
		return meetBlind, "", nil
	}
	type word struct {
		meet, address string
		never         error
	}
	words := make(chan word, len(r.o.Cluster.Peers))
	for _, p := range r.o.Cluster.Peers {
		if p.ID == r.o.Cluster.Node {
			words <- word{meet: meetNew}
			continue
		}
		go func() {
			a, err := r.askPlace(ctx, p.Address, placeQuery{Do: "meet", Store: store})
			w := word{meet: a.Meet, address: p.Address}
			if err != nil {
				w.meet = meetBlind
			}
			if refused, ok := errors.AsType[*transport.RefusedError](err); ok && refused.Reason == transport.OlderFormat {
				w.never = err
			}
			words <- w
		}()
	}
	// All peers are waited for, since one that knows of lost data outweighs the others. fresh
	// counts the nodes that have nothing.
	fresh := 0
	for range r.o.Cluster.Peers {
		w := <-words
		if w.never != nil {
			never = w.never
		}
		switch w.meet {
		case meetOpen, meetSame, meetGone, meetLost:
			if verdict != meetLost {
				verdict, address = w.meet, w.address
			}
		case meetNew:
			fresh++
		}
	}
	if verdict == "" && 2*fresh > len(r.o.Cluster.Peers) {
		return meetOpen, "", never
	}
	return verdict, address, never
}

// unfit reports whether a node refuses this one for a reason that will not pass: another number of
// shards, or a program that is too old.
func unfit(err error) bool {
	refused, ok := errors.AsType[*transport.RefusedError](err)
	return ok && (refused.Reason == transport.OtherShards || refused.Reason == transport.OlderFormat)
}

// join asks the member at address to admit this node until it does, and returns what the data
// directory is to remember. A refusal that will not pass ends it. If the token was used already,
// this node itself may have used it and died before it remembered that: then the cluster knows it,
// and it rejoins.
func (r *Running) join(ctx context.Context, own Member, address, do string, token core.JoinHash) (Member, error) {
	a := r.addresses()
	q := placeQuery{Do: do, Token: token, Name: r.o.Name, Peer: a.Peer, API: a.GRPC, HTTP: a.HTTP}
	var err error
	if q.Store, err = r.storeID(); err != nil {
		return own, err
	}
	for {
		a, err := r.askPlace(ctx, address, q)
		if err == nil && a.Error == "" {
			return r.joined(own, a.Dir)
		}
		if err == nil {
			err = errors.New(a.Error)
		}
		if a.Wrong && do == "join" && r.known(ctx, address) == meetLost { // its token was used: it is a member already
			return r.rejoin(ctx, own, address)
		}
		if a.Wrong {
			return own, fmt.Errorf("join at %s: %w", address, err)
		}
		if unfit(err) {
			return own, fmt.Errorf("join at %s: %w", address, err)
		}
		r.o.Logger.Warn("not taken in yet", "at", address, "error", err)
		if stop := r.pause(ctx, placeEvery); stop != nil {
			return own, fmt.Errorf("join at %s: %w", address, err)
		}
	}
}

// joined returns what the data directory is to remember of the directory that admitted this node,
// and makes the other members the transport's peers. Older replicas of this node are left out.
func (r *Running) joined(own Member, directory []byte) (Member, error) {
	d, err := core.DecodeDirectory(directory)
	if err != nil {
		return own, fmt.Errorf("join: read the members: %w", err)
	}
	me := d.OfNode(r.o.Cluster.Node)
	if me == nil {
		return own, fmt.Errorf("join: node %d is not among the members", r.o.Cluster.Node)
	}
	own.Joined, own.Replica, own.Nodes, own.Version = true, me.Replica, nil, d.Version
	for _, m := range d.Members {
		if m.Node != me.Node || m.Replica == me.Replica {
			own.Members = append(own.Members, JoinedMember{Replica: m.Replica, Node: m.Node, Name: m.Name, Peer: m.Peer, API: m.API, HTTP: m.HTTP})
		}
	}
	for _, m := range own.Members {
		if m.Node == me.Node {
			continue
		}
		if err := r.peers.SetPeer(transport.NodeID(m.Node), known(m.Peer)); err != nil {
			return own, fmt.Errorf("peers: node %d: %w", m.Node, err)
		}
	}
	return own, nil
}

// pause waits for d, or until ctx ends, whose error it returns.
func (r *Running) pause(ctx context.Context, d time.Duration) error {
	return env.Sleep(ctx, r.o.Clock, d)
}

// askPlace asks the node at a peer address, which need not be a known peer.
func (r *Running) askPlace(ctx context.Context, address string, q placeQuery) (a placed, err error) {
	ctx, cancel := context.WithTimeout(ctx, placeWait)
	defer cancel()
	s, err := r.peers.OpenAt(ctx, address, placeKind)
	if err != nil {
		return a, err
	}
	err = exchange(ctx, s, q, &a)
	return a, err
}

// exchange writes q as JSON to a stream, reads the answer into a, and closes the stream; it is
// closed early if ctx ends.
func exchange(ctx context.Context, s transport.Stream, q, a any) error {
	defer s.Close() //nolint:errcheck // it returns none
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	text, err := json.Marshal(q)
	if err == nil {
		_, err = s.Write(text)
	}
	if err == nil {
		err = s.CloseWrite()
	}
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(s, toldBytes))
	}
	if err == nil {
		err = json.Unmarshal(text, a)
	}
	return err
}

// servePlace answers a node that looks for its place. Its certificate has proved which node it is.
func (c *coordinator) servePlace(from transport.NodeID, s transport.Stream) {
	if err := s.SetDeadline(c.o.Clock.Wall().Add(placeWait + askWait)); err != nil {
		return
	}
	var q placeQuery
	text, err := io.ReadAll(io.LimitReader(s, askBytes))
	if err != nil || json.Unmarshal(text, &q) != nil {
		return // who asked sees that nothing was answered
	}
	ctx, cancel := context.WithTimeout(context.Background(), placeWait)
	defer cancel()
	if text, err = json.Marshal(c.place(ctx, uint64(from), q)); err != nil {
		return
	}
	if _, err := s.Write(text); err == nil {
		_ = s.CloseWrite() // who asked is gone if it fails
	}
}

// place answers one question of node from. A join needs its token; a rejoin needs none, as the
// certificate and the directory say who the node is. Any member can be asked: it has the leader
// make the change.
func (c *coordinator) place(ctx context.Context, from uint64, q placeQuery) placed {
	switch q.Do {
	case "meet":
		return placed{Meet: c.meet(ctx, from, q.Store)}
	case "join", "rejoin":
	default:
		return placed{Error: fmt.Sprintf("%q is not known to this node", q.Do), Wrong: true}
	}
	if !c.ready.Load() {
		return placed{Error: "this node has no place itself yet"}
	}
	op := &core.MemberChange{Do: core.MemberJoin, Node: from, Token: q.Token, Store: q.Store, Name: q.Name}
	if a := (announcement{q.Peer, q.API, q.HTTP}); a.check() == nil { // a program that does not announce its address says none here
		op.Peer, op.API, op.HTTP = a.Peer, a.GRPC, a.HTTP
	}
	if q.Do == "rejoin" {
		op.Do, op.Token = core.MemberRejoin, core.JoinHash{}
	}
	d, err := c.change(ctx, op)
	if err != nil {
		return placed{Error: err.Error(), Wrong: final(err)}
	}
	return placed{Dir: core.AppendDirectory(nil, &d)}
}

// final reports whether asking again would get the same refusal. A running job is the exception: it
// ends.
func final(err error) bool {
	if w, ok := errors.AsType[core.WrongMembership](err); ok {
		return w.Reason != "job_running"
	}
	_, invalid := errors.AsType[core.Invalid](err)
	_, unknown := errors.AsType[core.NotFound](err)
	_, full := errors.AsType[core.Exhausted](err)
	_, taken := errors.AsType[core.AlreadyExists](err)
	return invalid || unknown || full || taken
}

// meet returns what this node knows of another node's data directory. It reads the members with the
// confirmation of a majority, because an old list could take a lost directory for a new one.
func (c *coordinator) meet(ctx context.Context, from uint64, store core.StoreID) string {
	if !c.ready.Load() || c.virgin() {
		return meetNew
	}
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	d, err := c.node.ReadMembers(ctx)
	if err != nil {
		return meetBlind
	}
	switch m := d.OfNode(from); {
	case d.Version > 0 && m == nil:
		return meetGone
	// The directory of members names no data directory of the node. If its replica has spoken in
	// the logs all the same, it had data.
	case d.Version == 0, m.Store == core.StoreID{}:
		if c.node.Spoke(from) { // it lost its data before the directory knew of them
			return meetLost
		}
		return meetOpen
	case m.Store == store:
		return meetSame
	}
	return meetLost
}

// virgin reports whether this node has no entry of any shard, as in a cluster that never began.
func (c *coordinator) virgin() bool {
	return !slices.ContainsFunc(c.node.Standings(), func(s node.Standing) bool {
		return s.Last > replog.FirstIndex
	})
}
