package transport

import (
	"context"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/retry"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// leaders is what a client knows of who leads which partition, and its endpoints there. Where a namespace has one partition
// it is empty: the client as a whole follows that leader.
type leaders struct {
	at     []string // by partition: the address of the leader; empty: not known
	missed []int    // how often in a row a partition was not found where it was looked for
	// pool holds the endpoints of leaders by address, without the one in use.
	pool map[string]*Endpoint
}

// membersMax is how many members of its cluster a client remembers.
const membersMax = 64

// Widen makes room for n partitions.
func (w *Router) Widen(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n <= 1 || n <= len(w.lead.at) {
		return
	}
	w.lead.at = append(w.lead.at, make([]string, n-len(w.lead.at))...)
	w.lead.missed = append(w.lead.missed, make([]int, n-len(w.lead.missed))...)
	if w.lead.pool == nil {
		w.lead.pool = map[string]*Endpoint{}
	}
}

// AcquireTo returns the endpoint of the leader of a partition; release must follow.
func (w *Router) AcquireTo(partition int) *Endpoint {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.now
	if !g.Plain && partition >= 0 && partition < len(w.lead.at) {
		g = w.toward(w.lookAt(partition))
	}
	g.users++
	return g
}

// acquireFor returns the endpoint of a unary call, and notes on its route where that leads.
func (w *Router) acquireFor(r *Route) *Endpoint {
	if r == nil {
		return w.Acquire()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.now
	switch {
	case g.Plain:
	case r.leader != "":
		g = w.toward(r.leader)
	case r.Partition >= 0 && r.Partition < len(w.lead.at):
		g = w.toward(w.lookAt(r.Partition))
	}
	r.asked = g.Address
	g.users++
	return g
}

// lookAt is where to look for the leader of a partition: where it is known to be, else at one node after the other. It
// needs mu.
func (w *Router) lookAt(partition int) string {
	if known := w.lead.at[partition]; known != "" {
		return known
	}
	// Each time that it is not there the next node is asked; any node names the leader if it knows one.
	nodes := w.nodes()
	return nodes[w.lead.missed[partition]%len(nodes)]
}

// nodes are the addresses that the client knows, the one that it speaks to first. It needs mu.
func (w *Router) nodes() []string {
	out := []string{w.now.Address}
	for _, list := range [][]string{w.opts.Addresses, w.members, w.lead.at} {
		for _, address := range list {
			if address != "" && !slices.Contains(out, address) {
				out = append(out, address)
			}
		}
	}
	return out
}

// toward returns the endpoint at an address. It needs mu.
func (w *Router) toward(address string) *Endpoint {
	if w.closed || address == "" || address == w.now.Address {
		return w.now
	}
	if g := w.lead.pool[address]; g != nil {
		return g
	}
	g, err := w.overGRPC(address)
	if err != nil {
		return w.now // it knows who leads
	}
	w.lead.pool[address] = g
	return g
}

// StreamConn is a connection of streams, which are counted: a server bounds how many one may have.
type StreamConn struct {
	grpc.ClientConnInterface
	// open counts the streams on it. The Router's mutex guards it.
	open int
}

// ConnStreams is how many streams share a connection.
const ConnStreams = 500

// OpenStream returns a connection of g for one stream more; closeStream must follow.
func (w *Router) OpenStream(g *Endpoint) *StreamConn {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g.Plain {
		return &StreamConn{ClientConnInterface: g.streams}
	}
	for _, l := range g.lines {
		if l.open < ConnStreams {
			l.open++
			return l
		}
	}
	l := g.lines[0] // which makes streams wait for others to end
	if conn, err := w.connect(g.Address); err == nil {
		g.more = append(g.more, conn)
		l = &StreamConn{ClientConnInterface: conn}
		g.lines = append(g.lines, l)
	}
	l.open++
	return l
}

// CloseStream gives back what OpenStream returned.
func (w *Router) CloseStream(l *StreamConn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l.open--
}

// Waits reports whether a stream is to wait for the node that g leads to: there is no other.
func (w *Router) Waits(g *Endpoint) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return g.Plain || len(w.lead.at) == 0 || g == w.now && len(w.nodes()) == 1
}

// SetLeader takes in that g leads to the leader of a partition, and what that says of the others.
func (w *Router) SetLeader(g *Endpoint, partition int, directory []*millracev1.PartitionAddress, members []string) {
	w.mu.Lock()
	defer func() { closeEndpoints(w.sweep()) }()
	defer w.mu.Unlock()
	w.setLeaders(g, directory)
	w.setMembers(members)
	if g == w.now {
		w.unled = retry.Unled{}
	}
	if !g.Plain && partition < len(w.lead.at) {
		w.lead.at[partition], w.lead.missed[partition] = g.Address, 0
	}
}

// Directory takes in who leads which partition, as the node says that g leads to.
func (w *Router) Directory(g *Endpoint, list []*millracev1.PartitionAddress, members []string) {
	w.mu.Lock()
	defer func() { closeEndpoints(w.sweep()) }()
	defer w.mu.Unlock()
	w.setLeaders(g, list)
	w.setMembers(members)
}

// setLeaders takes in who leads which partition. An empty address is the node that says so. It needs mu.
func (w *Router) setLeaders(g *Endpoint, list []*millracev1.PartitionAddress) {
	for _, p := range list {
		address := p.GetAddress()
		if address == "" {
			address = g.Address
		}
		if n := int(p.GetPartition()); n < len(w.lead.at) && w.allows(address) {
			w.lead.at[n] = address
		}
	}
}

// setMembers takes in who the members are, as one of them says: where the client goes on when the nodes that it was given are no
// members any more. It needs mu.
func (w *Router) setMembers(members []string) {
	var known []string
	for _, address := range members {
		if len(known) < membersMax && w.allows(address) && !slices.Contains(w.opts.Addresses, address) {
			known = append(known, address)
		}
	}
	if len(members) > 0 { // one that is alone says nothing
		w.members = known
	}
}

// addresses are where the cluster may be: as given to the client, then as members have said since.
func (w *Router) addresses() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append(slices.Clone(w.opts.Addresses), w.members...)
}

// allows reports whether the client goes to an address because a server says so: a token goes nowhere in clear text.
func (w *Router) allows(address string) bool {
	_, _, err := net.SplitHostPort(address)
	return err == nil && (w.opts.Encrypted || !w.opts.Secure(address))
}

// TurnTo takes in why a call or stream to the leader of a partition, which was looked for at an address, has failed. It
// reports whether to go on at once: somebody else was named. Of several partitions only that one moves.
func (w *Router) TurnTo(partition int, asked string, e *Refusal) bool {
	if w.opts.Partitions() <= 1 {
		return w.Follow(e)
	}
	if e == nil || !e.Patient || partition < 0 {
		return false
	}
	w.mu.Lock()
	defer func() { closeEndpoints(w.sweep()) }()
	defer w.mu.Unlock()
	if w.now.Plain || partition >= len(w.lead.at) {
		return false
	}
	switch {
	// The node that was asked names the leader: go there, unless it is the one that was asked.
	case e.Code == wire.NotLeader && e.Leader != "" && w.allows(e.Leader):
		w.lead.at[partition] = e.Leader
		return asked != e.Leader
	case e.Code != wire.NotLeader && e.Code != wire.Unavailable:
	// It is not where it was looked for, and no answer has named another node since.
	case w.lead.at[partition] == asked || w.lead.at[partition] == "":
		w.lead.at[partition] = ""
		w.lead.missed[partition]++
	}
	return false
}

// leaderless leaves the node that the client speaks to if it knows of no leader for long.
func (w *Router) leaderless() {
	all := w.addresses()
	w.mu.Lock()
	g := w.now
	if !slices.Contains(all, g.Address) {
		all = append(all, g.Address)
	}
	leaves := !g.Plain && w.unled.Leave(g.Address, len(all), time.Now())
	w.mu.Unlock()
	if leaves {
		w.move(w.other(g.Address))
	}
}

// Redirect is turnTo for a unary call.
func (w *Router) Redirect(r *Route, e *Refusal) bool {
	switch {
	case r == nil:
		return w.Follow(e)
	case r.Partition >= 0:
		return w.TurnTo(r.Partition, r.asked, e)
	}
	if e.noLeader() {
		w.leaderless()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r.leader = ""
	if e.Code != wire.NotLeader || e.Leader == "" || !w.allows(e.Leader) || w.now.Plain {
		return false
	}
	r.leader = e.Leader
	return e.Leader != r.asked
}

// sweep leaves the endpoints that lead to no leader any more, and returns those on which nothing is under way.
func (w *Router) sweep() (idle []*Endpoint) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.drop(func(address string) bool { return address == w.now.Address || !slices.Contains(w.lead.at, address) })
}

// drop leaves the endpoints of the pool that which holds for. It needs mu.
func (w *Router) drop(which func(address string) bool) (idle []*Endpoint) {
	for address, g := range w.lead.pool {
		if !which(address) {
			continue
		}
		delete(w.lead.pool, address)
		g.leave()
		if g.users == 0 {
			idle = append(idle, g)
		} else {
			w.left = append(w.left, g)
		}
	}
	return idle
}

// all holds for every address: drop then empties the pool.
func all(string) bool { return true }

// closeEndpoints ends the connections of endpoints. It is called without the mutex.
func closeEndpoints(list []*Endpoint) {
	for _, g := range list {
		g.close()
	}
}

// Route is where a unary call goes: to the leader of a partition. It is told through the context of the call, and is for one
// call at a time.
type Route struct {
	Partition int    // below 0: the call is about none
	leader    string // that an answer to a call about no partition named
	asked     string // the address of the node that was asked last
}

// routeKey is under which a context carries its Route.
type routeKey struct{}

// WithRoute tells where a call goes.
func WithRoute(ctx context.Context, r *Route) context.Context {
	return context.WithValue(ctx, routeKey{}, r)
}

// routeOf returns the route of a call; nil for one that goes to the endpoint in use.
func routeOf(ctx context.Context) *Route {
	r, _ := ctx.Value(routeKey{}).(*Route)
	return r
}
