package millrace

import (
	"net"
	"slices"
	"time"

	"google.golang.org/grpc"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/retry"
)

// leaders is what a client knows of who leads which partition, and its endpoints there. Where a namespace has one partition
// it is empty: the client as a whole follows that leader.
type leaders struct {
	at     []string // by partition: the address of the leader; empty: not known
	missed []int    // how often in a row a partition was not found where it was looked for
	pool   map[string]*endpoint
}

// membersMax is how many members of its cluster a client remembers.
const membersMax = 64

// widen makes room for n partitions.
func (w *router) widen(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n <= 1 || n <= len(w.lead.at) {
		return
	}
	w.lead.at = append(w.lead.at, make([]string, n-len(w.lead.at))...)
	w.lead.missed = append(w.lead.missed, make([]int, n-len(w.lead.missed))...)
	if w.lead.pool == nil {
		w.lead.pool = map[string]*endpoint{}
	}
}

// acquireTo returns the endpoint of the leader of a partition; release must follow.
func (w *router) acquireTo(partition int) *endpoint {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.now
	if !g.plain && partition >= 0 && partition < len(w.lead.at) {
		g = w.toward(w.lookAt(partition))
	}
	g.users++
	return g
}

// acquireFor returns the endpoint of a unary call, and notes on its route where that leads.
func (w *router) acquireFor(r *route) *endpoint {
	if r == nil {
		return w.acquire()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.now
	switch {
	case g.plain:
	case r.leader != "":
		g = w.toward(r.leader)
	case r.partition >= 0 && r.partition < len(w.lead.at):
		g = w.toward(w.lookAt(r.partition))
	}
	r.asked = g.address
	g.users++
	return g
}

// lookAt is where to look for the leader of a partition: where it is known to be, else at one node after the other. It
// needs mu.
func (w *router) lookAt(partition int) string {
	if known := w.lead.at[partition]; known != "" {
		return known
	}
	nodes := w.nodes()
	return nodes[w.lead.missed[partition]%len(nodes)]
}

// nodes are the addresses that the client knows, the one that it speaks to first. It needs mu.
func (w *router) nodes() []string {
	out := []string{w.now.address}
	for _, list := range [][]string{w.c.opts.addresses, w.members, w.lead.at} {
		for _, address := range list {
			if address != "" && !slices.Contains(out, address) {
				out = append(out, address)
			}
		}
	}
	return out
}

// toward returns the endpoint at an address. It needs mu.
func (w *router) toward(address string) *endpoint {
	if w.closed || address == "" || address == w.now.address {
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

// streamConn is a connection of streams, which are counted: a server bounds how many one may have.
type streamConn struct {
	grpc.ClientConnInterface
	open int
}

// connStreams is how many streams share a connection.
const connStreams = 500

// openStream returns a connection of g for one stream more; closeStream must follow.
func (w *router) openStream(g *endpoint) *streamConn {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g.plain {
		return &streamConn{ClientConnInterface: g.streams}
	}
	for _, l := range g.lines {
		if l.open < connStreams {
			l.open++
			return l
		}
	}
	l := g.lines[0] // which makes streams wait for others to end
	if conn, err := w.connect(g.address); err == nil {
		g.more = append(g.more, conn)
		l = &streamConn{ClientConnInterface: conn}
		g.lines = append(g.lines, l)
	}
	l.open++
	return l
}

func (w *router) closeStream(l *streamConn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l.open--
}

// waits reports whether a stream is to wait for the node that g leads to: there is no other.
func (w *router) waits(g *endpoint) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return g.plain || len(w.lead.at) == 0 || g == w.now && len(w.nodes()) == 1
}

// setLeader takes in that g leads to the leader of a partition, and what that says of the others.
func (w *router) setLeader(g *endpoint, partition int, directory []*millracev1.PartitionAddress, members []string) {
	w.mu.Lock()
	defer func() { closeEndpoints(w.sweep()) }()
	defer w.mu.Unlock()
	w.setLeaders(g, directory)
	w.setMembers(members)
	if g == w.now {
		w.unled = retry.Unled{}
	}
	if !g.plain && partition < len(w.lead.at) {
		w.lead.at[partition], w.lead.missed[partition] = g.address, 0
	}
}

// directory takes in who leads which partition, as the node says that g leads to.
func (w *router) directory(g *endpoint, list []*millracev1.PartitionAddress, members []string) {
	w.mu.Lock()
	defer func() { closeEndpoints(w.sweep()) }()
	defer w.mu.Unlock()
	w.setLeaders(g, list)
	w.setMembers(members)
}

// setLeaders needs mu.
func (w *router) setLeaders(g *endpoint, list []*millracev1.PartitionAddress) {
	for _, p := range list {
		address := p.GetAddress()
		if address == "" {
			address = g.address
		}
		if n := int(p.GetPartition()); n < len(w.lead.at) && w.allows(address) {
			w.lead.at[n] = address
		}
	}
}

// setMembers takes in who the members are, as one of them says: where the client goes on when the nodes that it was given are no
// members any more. It needs mu.
func (w *router) setMembers(members []string) {
	var known []string
	for _, address := range members {
		if len(known) < membersMax && w.allows(address) && !slices.Contains(w.c.opts.addresses, address) {
			known = append(known, address)
		}
	}
	if len(members) > 0 { // one that is alone says nothing
		w.members = known
	}
}

// addresses are where the cluster may be: as given to the client, then as members have said since.
func (w *router) addresses() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append(slices.Clone(w.c.opts.addresses), w.members...)
}

// allows reports whether the client goes to an address because a server says so: a token goes nowhere in clear text.
func (w *router) allows(address string) bool {
	_, _, err := net.SplitHostPort(address)
	return err == nil && (w.c.opts.tls != nil || !w.c.opts.secure(address))
}

// turnTo takes in why a call or stream to the leader of a partition, which was looked for at an address, has failed. It
// reports whether to go on at once: somebody else was named. Of several partitions only that one moves.
func (w *router) turnTo(partition int, asked string, e *Error) bool {
	if w.c.partitions() <= 1 {
		return w.follow(e)
	}
	if e == nil || e.patience() == 0 || partition < 0 {
		return false
	}
	w.mu.Lock()
	defer func() { closeEndpoints(w.sweep()) }()
	defer w.mu.Unlock()
	if w.now.plain || partition >= len(w.lead.at) {
		return false
	}
	switch {
	case e.Code == CodeNotLeader && e.Leader != "" && w.allows(e.Leader):
		w.lead.at[partition] = e.Leader
		return asked != e.Leader
	case e.Code != CodeNotLeader && e.Code != CodeUnavailable:
	case w.lead.at[partition] == asked || w.lead.at[partition] == "":
		w.lead.at[partition] = ""
		w.lead.missed[partition]++
	}
	return false
}

// leaderless leaves the node that the client speaks to if it knows of no leader for long.
func (w *router) leaderless() {
	all := w.addresses()
	w.mu.Lock()
	g := w.now
	if !slices.Contains(all, g.address) {
		all = append(all, g.address)
	}
	leaves := !g.plain && w.unled.Leave(g.address, len(all), time.Now())
	w.mu.Unlock()
	if leaves {
		w.move(w.other(g.address))
	}
}

// redirect is turnTo for a unary call.
func (w *router) redirect(r *route, e *Error) bool {
	switch {
	case r == nil:
		return w.follow(e)
	case r.partition >= 0:
		return w.turnTo(r.partition, r.asked, e)
	}
	if e.noLeader() {
		w.leaderless()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r.leader = ""
	if e.Code != CodeNotLeader || e.Leader == "" || !w.allows(e.Leader) || w.now.plain {
		return false
	}
	r.leader = e.Leader
	return e.Leader != r.asked
}

// sweep leaves the endpoints that lead to no leader any more, and returns those on which nothing is under way.
func (w *router) sweep() (idle []*endpoint) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.drop(func(address string) bool { return address == w.now.address || !slices.Contains(w.lead.at, address) })
}

// drop leaves the endpoints of the pool that which holds for. It needs mu.
func (w *router) drop(which func(address string) bool) (idle []*endpoint) {
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

func all(string) bool { return true }

func closeEndpoints(list []*endpoint) {
	for _, g := range list {
		g.close()
	}
}
