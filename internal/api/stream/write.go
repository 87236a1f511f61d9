package stream

import (
	"sync"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/core"
)

// outgoing is one frame to send: an ack, assigned tasks, a Directory, or a frame that is built already.
type outgoing struct {
	frame *pb.ServerFrame // a frame that is built already

	ack      *pending      // a frame that is acknowledged
	proposed core.Proposed // how its proposal ended

	tasks []core.Assigned // what a subscription is given
	sub   uint32          // the client's number of that subscription

	leaders bool // a Directory, which is built when it is sent

	bytes int64 // what it adds to the send buffer
}

const (
	// frameBytes is what a frame, or an item of one, adds to the send buffer, in bytes, besides what it carries: about what it takes
	// in memory.
	frameBytes = 64
	// assignBytes is what one frame of assigned tasks aims at, so that small frames are not stuck behind large ones.
	assignBytes = 1 << 20
)

// done queues the ack of a frame whose work has ended. It never blocks: the node calls it.
func (st *stream) done(p *pending, d core.Proposed) {
	bytes := int64(frameBytes) * (1 + p.load.items)
	for _, r := range d.Results {
		for _, op := range r.Ops {
			bytes += int64(len(op.Prev))
		}
	}
	st.push(outgoing{ack: p, proposed: d, bytes: bytes})
}

// push queues a frame. It reports false when the stream is over.
func (st *stream) push(o outgoing) bool {
	st.mu.Lock()
	if st.closed {
		st.mu.Unlock()
		return false
	}
	st.out = append(st.out, o)
	st.weigh(o.bytes)
	st.mu.Unlock()
	wake(st.kick)
	return true
}

// Assign queues tasks for the client, in frames of about a mebibyte.
func (st *stream) Assign(sub uint32, tasks []core.Assigned, _ core.At) bool {
	st.mu.Lock()
	if st.closed || st.finishing {
		st.mu.Unlock()
		return false
	}
	for len(tasks) > 0 {
		n, bytes := 0, frameBytes
		for n < len(tasks) && (n == 0 || bytes < assignBytes) {
			bytes += api.AssignedBytes(&tasks[n])
			n++
		}
		st.out = append(st.out, outgoing{tasks: tasks[:n:n], sub: sub, bytes: int64(bytes)})
		st.weigh(int64(bytes))
		tasks = tasks[n:]
	}
	st.mu.Unlock()
	wake(st.kick)
	return true
}

// End lets what was proposed be answered, and ends the stream.
func (st *stream) End(why core.Fact) { st.finish(why) }

// LeaseLost tells the client that a lease was ended.
func (st *stream) LeaseLost(h core.TaskHold, reason string) {
	lost := &pb.LeaseLost{Id: h.Task.String(), Token: uint64(h.Token), Reason: reason}
	st.push(outgoing{frame: &pb.ServerFrame{Frame: &pb.ServerFrame_LeaseLost{LeaseLost: lost}}, bytes: frameBytes})
}

// Cancel asks the client to stop an attempt.
func (st *stream) Cancel(h core.TaskHold, reason string, until core.ShardTime) {
	st.push(cancelFrame(h, reason, until))
}

func cancelFrame(h core.TaskHold, reason string, until core.ShardTime) outgoing {
	cancel := &pb.Cancel{Id: h.Task.String(), Token: uint64(h.Token), Reason: reason, Until: api.TimeOf(until)}
	return outgoing{frame: &pb.ServerFrame{Frame: &pb.ServerFrame_Cancel{Cancel: cancel}}, bytes: frameBytes + int64(len(reason))}
}

// Available tells the client that a subscription without slots could have tasks.
func (st *stream) Available(sub uint32) {
	frame := &pb.ServerFrame{Frame: &pb.ServerFrame_Available{Available: &pb.Available{Sub: sub}}}
	st.push(outgoing{frame: frame, bytes: frameBytes})
}

// Room reports whether the send buffer has room, and the node for more than what it holds of this stream.
func (st *stream) Room() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	room := st.outBytes < st.d.Limits.SendBytes && (st.outBytes == 0 || !st.d.Sends.Full())
	return !st.closed && !st.finishing && room
}

// weigh counts what is queued to be sent, and what is sent as less. The caller holds mu.
func (st *stream) weigh(bytes int64) {
	st.outBytes += bytes
	if bytes > 0 {
		st.d.Sends.Add(bytes)
	} else {
		st.d.Sends.Give(-bytes)
	}
}

// write sends what is queued until the stream ends, then gives back the tasks that were not sent.
func (st *stream) write() {
	defer st.recovered()
	unsent := append(st.writeFrames(), st.dropQueued()...)
	leave := sync.OnceFunc(func() { st.d.leave(st) })
	handed := false
	defer func() {
		if !handed {
			leave()
		}
	}()
	if len(unsent) > 0 {
		st.d.Release(st.home.Partition, unsent, leave)
		handed = true
	}
}

// dropQueued empties the send buffer for good, and returns the tasks that were in it.
func (st *stream) dropQueued() (unsent []core.Assigned) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.closed = true
	for _, o := range st.out {
		unsent = append(unsent, o.tasks...)
	}
	st.out = nil
	st.weigh(-st.outBytes)
	return unsent
}

// writeFrames returns, at the end of the stream, the tasks of the frame that could not be sent.
func (st *stream) writeFrames() (unsent []core.Assigned) {
	defer st.recovered()
	for {
		o, ok := st.next()
		if !ok {
			select {
			case <-st.kick:
				continue
			case <-st.ended:
				return nil
			}
		}
		unsent = o.tasks // also when this panics
		err := st.ss.SendMsg(st.encode(&o))
		st.sent(&o)
		if err != nil {
			st.end(err)
			return unsent
		}
		unsent = nil
	}
}

// next takes the oldest frame; without one it ends a stream that is finishing and has nothing left to answer.
func (st *stream) next() (o outgoing, ok bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	select {
	case <-st.ended:
		return o, false
	default:
	}
	if len(st.out) == 0 {
		st.out = nil // its array grew with the longest queue
		if st.finishing && st.load.frames == 0 {
			st.end(st.final)
		}
		return o, false
	}
	o = st.out[0]
	st.out[0] = outgoing{}
	st.out = st.out[1:]
	st.sending, st.sendSince = true, st.d.Clock.Boot()
	return o, true
}

// sent takes a frame off the send buffer, and one that was acknowledged off the window.
func (st *stream) sent(o *outgoing) {
	st.mu.Lock()
	st.sending = false
	st.weigh(-o.bytes)
	if o.ack != nil {
		st.load.add(o.ack.load, -1)
	}
	st.mu.Unlock()
	if o.ack != nil {
		wake(st.room)
	}
	wake(st.drained)
}

// encode makes the frame to send: its bytes where that is plain, else a message.
func (st *stream) encode(o *outgoing) any {
	switch {
	case o.ack != nil && o.ack.plain(o.proposed):
		return o.ack.wireAck(o.proposed)
	case o.tasks != nil:
		return wireAssign(o.sub, o.tasks, st.d.backend.Now(st.home.Partition))
	}
	return st.build(o)
}

// build makes the frame to send.
func (st *stream) build(o *outgoing) *pb.ServerFrame {
	switch {
	case o.ack != nil:
		return &pb.ServerFrame{Frame: &pb.ServerFrame_Ack{Ack: o.ack.ack(o.proposed)}}
	case o.tasks != nil:
		a := &pb.Assign{Sub: o.sub, Tasks: api.ShowAssigned(o.tasks, st.d.backend.Now(st.home.Partition))}
		return &pb.ServerFrame{Frame: &pb.ServerFrame_Assign{Assign: a}}
	case o.leaders:
		return st.directoryFrame()
	}
	return o.frame
}
