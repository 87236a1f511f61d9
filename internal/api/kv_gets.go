package api

import (
	"slices"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

func sortRefused(list []*pb.PutRefused) {
	slices.SortFunc(list, func(a, b *pb.PutRefused) int { return int(a.GetItem()) - int(b.GetItem()) })
}

// asked is a frame of gets that waits for its turn.
type asked struct {
	p  *pending
	in *pb.GetsFrame
}

// gets reads keys. One goroutine of the stream does that, frame after frame, as long as what it has answered goes out.
func (st *stream) gets(p *pending, in *pb.GetsFrame) core.Fact {
	t := st.translator(p)
	if fact := SpaceName("keyspace", in.GetKeyspace()); fact != nil {
		return fact
	}
	if fact := t.items("keys", len(in.GetKeys())); fact != nil {
		return fact
	}
	for i, key := range in.GetKeys() {
		if fact := t.keyOnly(edge.Item("keys", i), key); fact != nil {
			return fact
		}
		if place := t.partOfKey(key); place != t.part {
			return edge.Belongs(edge.Item("keys", i), int(place.Index))
		}
	}
	if st.asks == nil {
		st.asks = make(chan asked, st.s.Limits.UnackedCommits)
		st.s.Work.Add(1)
		go func() {
			defer st.s.Work.Done()
			defer st.recovered()
			st.answerGets()
		}()
	}
	select {
	case st.asks <- asked{p, in}: // the window holds no more than it takes
	case <-st.ended:
	}
	return nil
}

func (st *stream) answerGets() {
	for {
		var a asked
		select {
		case a = <-st.asks:
		case <-st.ended:
			return
		}
		if !st.awaitSending() {
			return
		}
		o := core.ReadOptions{MinIndex: a.in.GetMinIndex()}
		reads, at, err := st.s.o.Backend.Keys(st.ss.Context(), st.part, a.in.GetKeyspace(), a.in.GetKeys(), prevBytes, o)
		bytes := int64(frameBytes)
		a.p.answer = func(ack *pb.Ack, _ core.Proposed) { ack.Gets = &pb.GetsResult{Results: showReads(reads)} }
		if err != nil {
			a.p.answer = func(ack *pb.Ack, _ core.Proposed) { ack.Error = a.p.answers.err(edge.FactOf(err, false)) }
		}
		for i := range reads {
			bytes += frameBytes + int64(len(reads[i].Value))
		}
		st.push(outgoing{ack: a.p, proposed: core.Proposed{At: at}, bytes: bytes})
	}
}

// awaitSending waits until the send buffer has room. It reports false at the end of the stream.
func (st *stream) awaitSending() bool {
	for {
		st.mu.Lock()
		room, over := st.outBytes < st.s.Limits.SendBytes, st.closed
		st.mu.Unlock()
		switch {
		case over:
			return false
		case room:
			return true
		}
		select {
		case <-st.drained:
		case <-st.ended:
			return false
		}
	}
}

func showReads(reads []core.KeyRead) []*pb.KVRead {
	out := make([]*pb.KVRead, len(reads))
	for i := range reads {
		out[i] = &pb.KVRead{Value: reads[i].Value, Rev: reads[i].Rev, Found: reads[i].Rev != 0}
	}
	return out
}
