package stream

import (
	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// asked is a frame of gets that waits for its turn. It was checked.
type asked struct {
	p  *pending      // to be acknowledged with what is read
	in *pb.GetsFrame // what is asked for
}

// gets reads keys. One goroutine of the stream does that, frame after frame, as long as what it has answered goes out.
func (st *stream) gets(p *pending, in *pb.GetsFrame) core.Fact {
	l := &st.d.Limits
	if fact := edge.SpaceName("keyspace", in.GetKeyspace()); fact != nil {
		return fact
	}
	if fact := api.Items(l, "keys", len(in.GetKeys())); fact != nil {
		return fact
	}
	for i, key := range in.GetKeys() {
		if fact := api.KeyLength(l, edge.Item("keys", i), key); fact != nil {
			return fact
		}
		if !st.home.hasKey(key) {
			return edge.Belongs(edge.Item("keys", i), st.home.placeOfKey(key))
		}
	}
	if st.asks == nil { // most streams read no keys
		st.asks = make(chan asked, l.UnackedCommits)
		st.d.Work.Add(1)
		go func() {
			defer st.d.Work.Done()
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

// answerGets reads the keys of one frame after the other and queues the ack of each, until the stream ends. It reads only while the
// send buffer has room: values are read when they can soon be sent, and a client that takes nothing costs no reads.
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
		reads, at, err := st.d.backend.Keys(st.ss.Context(), st.home.Partition, a.in.GetKeyspace(), a.in.GetKeys(), api.AnswerBytes, o)
		bytes := int64(frameBytes) // what the ack will add to the send buffer
		a.p.answer = func(ack *pb.Ack, _ core.Proposed) { ack.Gets = &pb.GetsResult{Results: api.ShowReads(reads)} }
		if err != nil {
			a.p.answer = func(ack *pb.Ack, _ core.Proposed) { ack.Error = a.p.answers.Err(edge.FactOf(err, false)) }
		}
		for i := range reads {
			bytes += frameBytes + int64(len(reads[i].Value))
		}
		st.push(outgoing{ack: a.p, proposed: core.Proposed{At: at}, bytes: bytes})
	}
}

// awaitSending waits until the send buffer has room, of which send_bytes is the limit. It reports false at the end of the stream. Several
// goroutines may wait: one that goes on lets the next one look.
func (st *stream) awaitSending() bool {
	for {
		st.mu.Lock()
		room, over := st.outBytes < st.d.Limits.SendBytes, st.closed
		st.mu.Unlock()
		switch {
		case over:
			return false
		case room:
			wake(st.drained)
			return true
		}
		select {
		case <-st.drained:
		case <-st.ended:
			return false
		}
	}
}
