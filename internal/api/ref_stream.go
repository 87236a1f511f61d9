package api

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

const (
	// sessionFlight is how many transactions of a stream are under way at once: as many answers as are kept of a session.
	sessionFlight = 64
	// loadFlight is the same of frames that load refs, which are large.
	loadFlight = 16
	// loadChanges bounds one of those.
	loadChanges = 1000
	// transactionBytes bounds the changes of a transaction that is being put together.
	transactionBytes = 4 << 20
	// listWait bounds how long a list may hold the state that it reads.
	listWait = 10 * time.Minute
	// infoAge is how old the settings may be by which a stream looks for facts: Apply refuses what was not looked for.
	infoAge = 5 * time.Second
)

// refStream is what sessions and loads have in common: one repository, commits numbered from 1, a bounded number of them
// under way, and one goroutine that answers.
type refStream struct {
	rs *RefService
	// c is the call that opened it, ctx ends with the stream.
	c   *call
	ctx context.Context
	// repo and tag name the repository.
	repo string
	tag  string
	// session is that in which the commits are numbered.
	session core.SessionID

	// info are the repository's settings as of read, by the boot clock. The reader alone uses both.
	info core.RepoInfo // as of read, by the boot clock
	read time.Duration
	// old says that something was refused: the settings may have changed.
	old atomic.Bool

	// flight has a place for each commit under way, answers what became of them, in the order in which
	// they end.
	flight  chan struct{}
	answers chan refAnswer // of the commits under way, in the order in which they end
}

// refAnswer is the end of one commit.
type refAnswer struct {
	number uint64        // of the commit; 0: of a frame that has none
	fact   error         // it was not proposed for this, but its number was used up
	p      core.Proposed // how the proposal ended
}

// openStream begins a stream of commits on one repository. It returns the number of the session's last
// commit that was applied, after which the client goes on. flight is how many commits may be under
// way.
func (rs *RefService) openStream(ctx context.Context, repo, tag string, session []byte, flight int) (*refStream, uint64, core.At, error) {
	c, err := rs.beginRepo(ctx, repo, tag, false)
	if err != nil {
		return nil, 0, core.At{}, err
	}
	id, fact := requestID(session)
	if fact != nil || id == (core.RequestID{}) {
		return nil, 0, core.At{}, edge.Invalid("session", "must be 16 random bytes")
	}
	st := &refStream{
		rs: rs, c: c, ctx: ctx, repo: repo, tag: tag, session: core.SessionID(id),
		flight: make(chan struct{}, flight), answers: make(chan refAnswer, flight),
	}
	if st.info, _, err = rs.refs.Repo(ctx, c.t.part, repo, core.ReadOptions{}); err != nil {
		return nil, 0, core.At{}, err
	}
	st.read = rs.s.o.Clock.Boot()
	applied, at, err := rs.refs.RefSeq(ctx, c.t.part, st.session)
	return st, applied, at, err
}

// transact proposes a transaction under its number when there is room; bytes is the length of its frame. A transaction that the
// edge itself refuses uses up its number too, so that the next numbers leave no gap.
func (st *refStream) transact(number uint64, op *core.RefTxn, bytes int64, fact error) error {
	if number == 0 {
		return edge.Invalid("number", "must count from 1")
	}
	if err := st.enter(); err != nil {
		return err
	}
	// Without ops it only uses up its number.
	commit := core.Commit{Partition: st.c.t.part, Principal: st.c.who.Name, Session: st.session, Seq: number}
	if fact == nil {
		fact = st.facts(op)
	}
	if fact == nil {
		commit.Ops = []core.Op{op}
		if f := FitsLog(st.c.t.l, &commit); f != nil {
			fact, commit.Ops = f, nil
		}
	}
	// The bytes are counted while the log has them, even beyond the bound: enter has waited for room.
	frames := st.rs.s.Frames
	frames.Add(bytes)
	give := sync.OnceFunc(func() { frames.Give(bytes) })
	handed := false
	defer func() {
		if !handed {
			give() // it panicked
		}
	}()
	st.rs.s.node.commits.Propose(commit.Partition, []core.Commit{commit}, func(p core.Proposed) {
		give()
		// It has room for as many answers as commits are under way, so the node does not wait here.
		st.answers <- refAnswer{number, fact, p}
	})
	handed = true
	return nil
}

// enter takes a place among the commits under way, and waits until the node has room for a frame.
func (st *refStream) enter() error {
	select {
	// Room is taken before the node is asked for some: commits that wait hold nothing else.
	case st.flight <- struct{}{}:
	case <-st.ctx.Done():
		return st.ctx.Err()
	}
	for {
		freed := st.rs.s.Frames.Room()
		if freed == nil {
			return nil
		}
		select {
		case <-freed:
		case <-st.ctx.Done():
			return st.ctx.Err()
		}
	}
}

// facts writes into a transaction what Apply cannot find out, by settings that are new enough.
func (st *refStream) facts(op *core.RefTxn) error {
	now := st.rs.s.o.Clock.Boot()
	if st.old.Load() || now-st.read > infoAge {
		info, _, err := st.rs.refs.Repo(st.ctx, st.c.t.part, st.repo, core.ReadOptions{Stale: true})
		if err != nil {
			return err
		}
		st.info, st.read = info, now
		st.old.Store(false)
	}
	op.Repo, op.Tag, op.Via = st.repo, st.tag, core.ViaAPI
	st.c.t.allow(op)
	ctx, cancel := context.WithTimeout(st.ctx, lookupWait)
	defer cancel()
	// With the settings at hand, so that a read per transaction is saved.
	if err := st.rs.s.refFacts(ctx, st.c.t.part, op, &st.info); err != nil {
		return edge.FactOf(err, false)
	}
	return nil
}

// outcome turns an answer into the transaction's result, or why there is none.
func (a *refAnswer) outcome() (*core.RefsAnswer, core.Result, error) {
	if a.p.Err != nil {
		return nil, core.Result{}, a.p.Err
	}
	if len(a.p.Results) != 1 {
		return nil, core.Result{}, errResults
	}
	r := a.p.Results[0]
	switch {
	case r.Refusal != nil:
		return nil, r, r.Refusal.Fact
	case a.fact != nil:
		return nil, r, a.fact
	// The number was used up when it came first, and the node keeps no other answer of it.
	case len(r.Ops) == 0:
		return nil, r, core.Invalid{Field: "number", Reason: "refused_before", Message: "was refused when it came first"}
	}
	return r.Ops[0].Refs, r, nil
}

// serve runs the reader and the writer side by side until both are done. end is the reader's error, nil at a clean end: then what
// is under way is answered first.
func (st *refStream) serve(read func() error, send func(refAnswer) error) error {
	// With room for one, so that a reader which ends late does not stay.
	done := make(chan error, 1)
	st.rs.s.Work.Add(1)
	go func() {
		defer st.rs.s.Work.Done()
		done <- st.rs.s.Safely(read)
	}()
	var ended bool
	var cause error
	stop := st.rs.s.Life.Done()
	for {
		// After a clean end all commits are answered; after an error the client reads no answers.
		if ended && (cause != nil || len(st.flight) == 0) {
			return cause
		}
		select {
		case a := <-st.answers:
			err := send(a)
			// Given back after the answer was sent: a client that reads nothing stops its own commits.
			<-st.flight
			if err != nil {
				return err
			}
		case cause = <-done:
			ended = true
		// Commits under way are not waited for: the client goes on with the session at another node.
		case <-stop:
			return core.Unavailable{Reason: "stopping"}
		case <-st.ctx.Done():
			return edge.FactOf(st.ctx.Err(), true)
		}
	}
}

// Session serves transactions of one repository one after another.
func (rs *RefService) Session(ss grpc.BidiStreamingServer[pb.RefSessionRequest, pb.RefSessionResponse]) error {
	// The first frame says which repository and which session.
	first, _, err := recvFrame[pb.RefSessionRequest](rs.s, ss)
	if err != nil {
		return eof(err)
	}
	open := first.GetOpen()
	if open == nil {
		return edge.OutOfTurn("opened", "not open")
	}
	ctx, cancel := context.WithCancel(ss.Context())
	defer cancel()
	st, applied, at, err := rs.openStream(ctx, open.GetRepo(), open.GetTag(), open.GetSession(), sessionFlight)
	if err != nil {
		return err
	}
	// The answer to open: from which number the client goes on.
	if err := ss.Send(&pb.RefSessionResponse{Applied: applied, Rev: st.info.Stats.Rev, At: ShowAt(at)}); err != nil {
		return err
	}
	se := &refSession{st: st}
	return st.serve(func() error {
		for {
			in, bytes, err := recvFrame[pb.RefSessionRequest](rs.s, ss)
			if err != nil {
				return eof(err)
			}
			if err := se.frame(in, bytes); err != nil {
				return err
			}
		}
	}, func(a refAnswer) error { return ss.Send(se.answer(a)) })
}

// eof turns the end of a client's side into a clean end.
func eof(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// message is a pointer to a T of the contract.
type message[T any] interface {
	*T
	proto.Message
}

// recvFrame receives one frame of a stream, within the limit of a message and without unknown fields; bytes is its length.
func recvFrame[T any, M message[T]](s *Server, ss grpc.ServerStream) (m M, bytes int64, err error) {
	m = new(T)
	bytes, err = s.receive(ss, m)
	return m, bytes, err
}

// refSession puts transactions together. The reader alone uses it.
type refSession struct {
	st *refStream
	// started says that a transaction is being put together: op are its changes, size about their
	// bytes.
	started bool
	op      *core.RefTxn // while started
	size    int64        // about, of its changes
	// failed is the first mistake of it, which sticks until abort or commit: both end the transaction.
	failed error
}

// frame takes one frame. A transaction comes whole, or is started, filled and committed; bytes is the
// length of the frame.
func (se *refSession) frame(in *pb.RefSessionRequest, bytes int64) error {
	switch f := in.GetFrame().(type) {
	case *pb.RefSessionRequest_Txn:
		// A whole transaction while one is put together is out of turn; its number is used up all the
		// same.
		if se.started || se.failed != nil {
			err := se.failed
			if err == nil {
				err = edge.OutOfTurn("idle", "started")
			}
			return se.st.transact(f.Txn.GetNumber(), nil, bytes, err)
		}
		op := &core.RefTxn{Message: f.Txn.GetMessage()}
		return se.st.transact(f.Txn.GetNumber(), op, bytes, asError(se.st.c.t.refChanges(op, f.Txn.GetChanges())))
	case *pb.RefSessionRequest_Start:
		if se.started {
			se.fail(edge.OutOfTurn("idle", "started"))
			return nil
		}
		se.started, se.op, se.size = true, &core.RefTxn{}, 0
	case *pb.RefSessionRequest_Ops:
		se.add(f.Ops.GetChanges())
	case *pb.RefSessionRequest_Commit:
		return se.commit(f.Commit)
	case *pb.RefSessionRequest_Abort:
		se.reset()
		se.failed = nil
		if err := se.st.enter(); err != nil {
			return err
		}
		// An abort has no number, and is answered all the same.
		se.st.answers <- refAnswer{}
	// A second open, or nothing.
	default:
		return edge.OutOfTurn("opened", "open already")
	}
	return nil
}

// asError keeps a nil fact from looking like an error.
func asError(f core.Fact) error {
	if f == nil {
		return nil
	}
	return f
}

// reset forgets the transaction that was being put together.
func (se *refSession) reset() { se.started, se.op, se.size = false, nil, 0 }

// fail notes a mistake, if it is the first: later ones may only follow from it.
func (se *refSession) fail(err error) {
	if se.failed == nil {
		se.failed = err
	}
}

// add adds changes to the transaction that is being put together.
func (se *refSession) add(in []*pb.RefChange) {
	switch {
	case se.failed != nil:
		return
	case !se.started:
		se.fail(edge.OutOfTurn("started", "idle"))
		return
	}
	for _, c := range in {
		// A guess for what the rest of a change takes.
		se.size += int64(100 + len(c.GetName()) + len(c.GetTarget()) + len(c.GetMessage()))
	}
	if se.size > transactionBytes {
		se.fail(edge.TooLarge("changes", "ref_transaction_bytes", transactionBytes))
		return
	}
	if fact := se.st.c.t.refChanges(se.op, in); fact != nil {
		se.fail(fact)
	}
}

// commit proposes the transaction that was put together, or uses up its number with the mistake.
func (se *refSession) commit(in *pb.RefSessionCommit) error {
	op, bytes, err := se.op, se.size, se.failed
	if err == nil && !se.started {
		err = edge.OutOfTurn("started", "idle")
		se.fail(err)
	}
	if err == nil {
		op.Message = in.GetMessage()
		err = asError(refMessage("message", op.Message))
	}
	if err == nil && len(op.Changes) == 0 {
		err = edge.Invalid("changes", "must not be empty")
	}
	se.reset()
	return se.st.transact(in.GetNumber(), op, bytes, err)
}

// answer shows what became of a commit.
func (se *refSession) answer(a refAnswer) *pb.RefSessionResponse {
	if a.number == 0 {
		return &pb.RefSessionResponse{}
	}
	out := &pb.RefSessionResponse{Number: a.number}
	got, r, err := a.outcome()
	if err != nil {
		out.Error, out.Failures = se.st.showRefusal(err)
		return out
	}
	out.Results, out.Rev, out.Replayed, out.At = showChanged(got), got.Rev, r.Replayed, ShowAt(AtOf(r, a.p.At))
	return out
}

// showRefusal shows an error, and apart from it all changes that failed: an answer of a stream has room for them.
func (st *refStream) showRefusal(err error) (*pb.Error, []*pb.Failure) {
	e := st.rs.s.Wire("RefService", edge.FactOf(err, true), false)
	f, ok := errors.AsType[core.RefRefused](err)
	if !ok {
		return e, nil
	}
	// Facts by newer settings may do better.
	st.old.Store(true)
	e.Failures = nil
	all := make([]*pb.Failure, len(f.Failures))
	for i := range f.Failures {
		all[i] = edge.ShowFailure(&f.Failures[i])
	}
	return e, all
}

// LoadRefs takes many refs, frame by frame; each change stands alone.
func (rs *RefService) LoadRefs(ss grpc.BidiStreamingServer[pb.LoadRefsRequest, pb.LoadRefsResponse]) error {
	first, bytes, err := recvFrame[pb.LoadRefsRequest](rs.s, ss)
	if err != nil {
		return eof(err)
	}
	ctx, cancel := context.WithCancel(ss.Context())
	defer cancel()
	st, applied, at, err := rs.openStream(ctx, first.GetRepo(), first.GetTag(), first.GetSession(), loadFlight)
	if err != nil {
		return err
	}
	if err := ss.Send(&pb.LoadRefsResponse{Applied: applied, Rev: st.info.Stats.Rev, At: ShowAt(at)}); err != nil {
		return err
	}
	return st.serve(func() error {
		for in := first; ; {
			if err := st.load(in, bytes); err != nil {
				return err
			}
			if in, bytes, err = recvFrame[pb.LoadRefsRequest](rs.s, ss); err != nil {
				return eof(err)
			}
		}
	}, func(a refAnswer) error { return ss.Send(st.loaded(a)) })
}

// load proposes one frame of a load. One that only asks has its answer already.
func (st *refStream) load(in *pb.LoadRefsRequest, bytes int64) error {
	if in.GetNumber() == 0 && len(in.GetChanges()) == 0 {
		return nil
	}
	op := &core.RefTxn{Message: in.GetMessage(), Partial: true}
	fact := core.Fact(nil)
	if len(in.GetChanges()) > loadChanges {
		fact = edge.TooLarge("changes", "load_changes", loadChanges)
	} else {
		fact = st.c.t.refChanges(op, in.GetChanges())
	}
	return st.transact(in.GetNumber(), op, bytes, asError(fact))
}

// loaded shows what became of a frame of a load: how many refs it changed, and which it could not.
func (st *refStream) loaded(a refAnswer) *pb.LoadRefsResponse {
	out := &pb.LoadRefsResponse{Number: a.number}
	got, r, err := a.outcome()
	if err != nil {
		out.Error, _ = st.showRefusal(err)
		return out
	}
	out.Rev, out.At = got.Rev, ShowAt(AtOf(r, a.p.At))
	for i := range got.Changes {
		c := &got.Changes[i]
		switch {
		case c.Failure != nil && len(out.Failures) < core.MaxRefFailures:
			out.Failures = append(out.Failures, edge.ShowFailure(c.Failure))
		// A repetition finds refs where they should be.
		case c.Failure == nil && c.Old != c.New:
			out.Changed++
		}
	}
	return out
}
