package server

import (
	"context"
	"encoding/binary"
	"io"
	"sync"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog/transport"
)

// A node that was offline while all its peers were replaced refuses the new members as unknown when they dial it. A refused
// member then opens a members stream to the node, which any node of the cluster may do by its certificate. Over that stream the
// node asks for the current members, and takes the answer if it is newer than what it has. Nothing else can be asked or told
// over it.

const (
	// membersKind is the kind of those streams.
	membersKind = "members"
	// toldAtOnce bounds the number of such streams that are open at once: there is no hurry.
	toldAtOnce = 2
)

// telling is the set of nodes that are being told the members at this moment.
type telling struct {
	// mu guards now.
	mu  sync.Mutex
	now map[transport.NodeID]bool
}

// begin adds a node to the set. It returns false if the node is in it, or if there are too many.
func (t *telling) begin(to transport.NodeID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now == nil {
		t.now = make(map[transport.NodeID]bool)
	}
	if t.now[to] || len(t.now) >= toldAtOnce {
		return false
	}
	t.now[to] = true
	return true
}

// end takes a node out of the set.
func (t *telling) end(to transport.NodeID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.now, to)
}

// unknownTo is called by the transport when a peer refuses this node as unknown. It tells the peer
// the members in a goroutine. A failure is ignored: the next refused connection starts it again.
func (c *coordinator) unknownTo(to transport.NodeID) {
	if !c.ready.Load() || !c.tells.begin(to) {
		return
	}
	go func() {
		defer c.tells.end(to)
		c.tellMembers(to)
	}()
}

// tellMembers opens a stream to a peer and answers its question: the peer sends the version of the
// members that it has, in 8 bytes, and gets this node's members if they are newer.
func (c *coordinator) tellMembers(to transport.NodeID) {
	ctx, cancel := context.WithTimeout(context.Background(), askWait)
	defer cancel()
	s, err := c.peers.OpenStream(ctx, to, membersKind)
	if err != nil {
		return
	}
	defer s.Close() //nolint:errcheck // it returns none
	if s.SetDeadline(c.o.Clock.Wall().Add(askWait)) != nil {
		return
	}
	// The version of the members that the peer has, in big-endian order.
	var has [8]byte
	if _, err := io.ReadFull(s, has[:]); err != nil {
		return
	}
	d := c.node.Members()
	if d.Version <= binary.BigEndian.Uint64(has[:]) {
		return // then it is this node that is behind
	}
	if _, err := s.Write(core.AppendDirectory(nil, &d)); err == nil {
		_ = s.CloseWrite() // who asked is gone if it fails
	}
}

// takeMembers is the other side: a node that is unknown here has opened a stream, and this node
// asks it for the members. node.Introduce checks the answer and takes it only if it is newer.
func (c *coordinator) takeMembers(from transport.NodeID, s transport.Stream) {
	if !c.ready.Load() || s.SetDeadline(c.o.Clock.Wall().Add(askWait)) != nil {
		return
	}
	has := c.node.Members().Version
	if _, err := s.Write(binary.BigEndian.AppendUint64(nil, has)); err != nil || s.CloseWrite() != nil {
		return
	}
	text, err := io.ReadAll(io.LimitReader(s, toldBytes))
	if err != nil || len(text) == 0 {
		return
	}
	if err := c.node.Introduce(text); err != nil {
		c.o.Logger.Warn("directory of members of a node that is none as far as this one knows", "node", from, "error", err)
		return
	}
	if now := c.node.Members().Version; now > has {
		c.o.Logger.Info("the members are others than this node knew", "told_by", from, "version", now, "before", has)
	}
}
