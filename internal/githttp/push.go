package githttp

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// pushing is one push on its way.
//
// Its commands are narrowed step by step: each step refuses those that cannot land, and the next
// one looks at those that are open. Nothing is changed until propose; from there on only the
// entries decide. One commit holds all changes of an atomic push, or up to a thousand of another
// one.
type pushing struct {
	*request
	*commands
	// in is the body behind the commands: the pack.
	in *bufio.Reader
	// id is the request id of the push, given by the client or drawn. The ids of its commits are
	// made from it.
	id   core.RequestID
	pack Push       // nil: nothing of it needs an object
	kept *core.Pack // what was received and kept
	// at is the shard time from which the kept pack is protected. The commit carries it, and is
	// refused if it comes too late.
	at     core.ShardTime
	unpack string   // what the client is told of its pack; empty: it is well
	said   []string // lines for people
	lost   bool     // a commit's outcome is unknown
}

// push answers a request to git-receive-pack. Once it is known to be a push, git shows its user nothing but what is told within
// its own protocol: no status of HTTP, and nothing before all was sent.
//
// The steps: read the commands, run the push as far as it goes, read what the client still sends,
// and report. An error of run refuses all commands that have no outcome; it is told in the report
// if the client reads one, and by the status of HTTP otherwise.
func (q *request) push() error {
	b, err := q.open(core.TooLarge{Field: "body", Limit: "push_command_bytes", Max: q.s.l.CommandBytes})
	if err != nil {
		return err
	}
	in := bufio.NewReaderSize(b, 64<<10)
	c, err := q.readCommands(in)
	if err != nil {
		return err
	}
	defer q.release(c)
	if len(c.list) == 0 && c.denied == nil {
		q.answer(receivePack + result)
		return nil
	}
	q.s.stats.pushes.Add(1)
	p := &pushing{request: q, commands: c, in: in}
	maxPush := q.repo.Config.WithDefaults().MaxPush
	b.allow(core.TooLarge{Field: "pack", Limit: "max_push", Max: maxPush}, int64(in.Buffered()))
	err = p.run()
	switch {
	case err == nil:
	case p.gone(err):
		return err
	case edge.Is[core.Unauthenticated](p.outcome(err)):
		return err // by the status: git asks for another token, and sends the push again
	default:
		p.refuseAll(err)
	}
	p.drain()
	if err != nil && !p.reports() {
		return err // this client knows of nothing else
	}
	return p.report()
}

// reports reports whether the client reads what is told within git's protocol.
func (p *pushing) reports() bool {
	return p.caps["report-status"] || p.caps["report-status-v2"] || p.caps["side-band-64k"]
}

// run takes the push as far as it goes. What is refused is in the commands; an error refuses all
// that is not. What costs little to find out comes first: a push that may not be, or whose commands
// cannot land, is refused before its pack is taken in.
func (p *pushing) run() error {
	ctx := p.context()
	if p.denied != nil {
		return p.denied
	}
	if err := p.writable(); err != nil {
		return err
	}
	var given bool
	var err error
	if p.id, given, err = p.readOurs(); err != nil {
		return err
	}
	if !given {
		p.s.o.Rand.Fill(p.id[:])
	}
	if p.caps["atomic"] && len(p.list) > p.s.l.AtomicRefs {
		return core.TooLarge{Field: "commands", Limit: "atomic_push_refs", Max: int64(p.s.l.AtomicRefs)}
	}
	if err := p.check(ctx, given); err != nil {
		return err
	}
	if p.none() {
		return nil
	}
	if slices.ContainsFunc(p.list, func(c command) bool { return !c.deletes() }) {
		if p.pack, err = p.s.o.Objects.Begin(ctx, p.repo.Place, p.who.Name, p.repo.Config.WithDefaults().MaxPush, p.fresh); err != nil {
			return err
		}
		defer p.pack.Close()
		if err := p.receive(ctx); err != nil {
			return p.unpackFailed(err)
		}
	}
	return p.propose(ctx)
}

// unpackFailed notes that the pack was not taken.
func (p *pushing) unpackFailed(err error) error {
	if p.gone(err) {
		return err
	}
	refused, ok := errors.AsType[*RefusedPack](err)
	if !ok {
		_, p.unpack = describe(err)
		if f, ok := errors.AsType[core.Exhausted](err); ok && f.Limit == "git_memory" {
			p.say("a large file that is sent as a difference takes memory: push with git -c core.bigFileThreshold=1m")
		}
		return err
	}
	p.unpack = refused.Line
	p.say(p.unpack)
	p.refuse("unpacker error")
	return nil
}

// refuseAll refuses the push as a whole, and tells why where people see it.
func (p *pushing) refuseAll(err error) {
	p.say(p.count(err))
	p.refuse(p.said[len(p.said)-1])
}

// say notes a line for people.
func (p *pushing) say(text string) { p.said = append(p.said, line(text)) }

// refuse refuses what is not refused yet.
func (p *pushing) refuse(text string) {
	for i := range p.list {
		if p.list[i].refused == "" {
			p.list[i].refused = line(text)
		}
	}
}

// none reports whether nothing is left to do. One refused change of an atomic push refuses the
// others. In a push that is not atomic each change stands alone.
func (p *pushing) none() bool {
	left := slices.ContainsFunc(p.list, func(c command) bool { return c.open() })
	if left && p.caps["atomic"] && slices.ContainsFunc(p.list, func(c command) bool { return c.refused != "" }) {
		p.refuse("atomic push failure")
		return true
	}
	return !left
}

// Bounds of what is read of a push that is refused. A client that is refused may have a pack of any
// size left to send; to read most of it lets the answer be seen, and the bounds keep a client from
// holding a connection for ever.
const (
	drainBytes = 4 << 30
	drainTime  = 10 * time.Minute
)

// drain reads the rest of the request, not inflated: a client that is still sending shows its user no answer.
func (p *pushing) drain() {
	end := p.s.o.Clock.Boot() + drainTime
	from := &timed{q: p.request}
	buf := make([]byte, 64<<10)
	for left := drainBytes; left > 0 && p.s.o.Clock.Boot() < end; {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		left -= n
	}
}

// check refuses what can be refused before the pack is read: bad names and stale old values. The
// entry judges again. Of a push that may be repeated, what is where it should be is done. Names are
// asked for a thousand at a time, of one revision each. The answers come in the order of the names,
// so each belongs to the next command that was not refused before.
func (p *pushing) check(ctx context.Context, repeated bool) error {
	seen := make(map[string]bool, len(p.list))
	var names []string
	for i := range p.list {
		c := &p.list[i]
		if !utf8.ValidString(c.name) {
			c.refused = "the name of a ref must be UTF-8"
		} else if rule := core.CheckRefName(c.name); rule != "" || !strings.HasPrefix(c.name, "refs/") || strings.Count(c.name, "/") < 2 {
			c.refused = "funny refname"
		} else if seen[c.name] {
			return core.Invalid{Field: "commands", Reason: "ref_duplicate", Message: line(c.name) + " is there twice"}
		}
		seen[c.name] = true
		if c.refused == "" {
			names = append(names, c.name)
		}
	}
	if p.fresh {
		for i := range p.list {
			if c := &p.list[i]; c.refused == "" {
				p.stale(c, core.Ref{})
			}
		}
		return nil
	}
	at := 0
	for chunk := range slices.Chunk(names, 1000) {
		info, refs, err := p.s.o.Backend.Ref(ctx, p.repo, chunk)
		if err != nil {
			return err
		}
		if info.ID != p.repo.ID {
			return core.NotFound{Kind: "repository", ID: p.repo.Name}
		}
		for _, r := range refs {
			for p.list[at].refused != "" {
				at++
			}
			c := &p.list[at]
			at++
			if !p.who.Scopes.Has(auth.RefAdmin) && p.s.o.Backend.Hidden(&info, c.name) {
				c.refused = textOf(&core.RefFailure{Reason: core.RefHidden})
				continue
			}
			if c.there = repeated && r.ID == c.new; !c.there {
				p.stale(c, r)
			}
		}
	}
	return nil
}

// stale refuses a command whose old value is not what the ref is at.
func (p *pushing) stale(c *command, r core.Ref) {
	switch {
	case c.old == r.ID || c.deletes() && r.Name == "":
	case c.old.IsZero():
		c.refused = textOf(&core.RefFailure{Reason: core.RefExists})
	default:
		c.refused = textOf(&core.RefFailure{Reason: core.RefMismatch})
	}
}

// receive reads the pack, checks that nothing is missing and makes it durable.
//
// If the process dies before the commit, what was received and kept is removed later: no entry
// names it.
func (p *pushing) receive(ctx context.Context) error {
	err := p.timed(phaseReceive, func() error { return p.pack.Receive(ctx, p.in) })
	if refused, ok := errors.AsType[*RefusedPack](err); ok && refused.NotWhole && p.shallow {
		if err = p.refuseShallow(ctx); err == nil && p.none() {
			return nil
		}
	}
	if err != nil {
		return err
	}
	if err := p.timed(phaseConnect, func() error { return p.examine(ctx) }); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err() // the client has gone, and nothing has happened
	}
	if p.none() {
		return nil
	}
	err = p.timed(phaseKeep, func() error {
		kept, at, ok, err := p.pack.Keep(ctx)
		if err == nil && ok {
			p.kept, p.at = &kept, at
		}
		return err
	})
	if err != nil || p.kept == nil {
		return err
	}
	err = p.timed(phaseStage, func() error { return p.pack.Spread(ctx) })
	if f, ok := errors.AsType[core.Unavailable](err); ok {
		return &RefusedPack{Line: f.Error()} // the client has sent all, and is told in words
	}
	return err
}

// timed counts how long a phase takes.
func (p *pushing) timed(phase int, do func() error) error {
	defer p.s.time(phase)()
	return do()
}

// refuseShallow refuses what needs the pack of a client whose history is not whole, and that needs more of it. What the server
// has already, whole as all that it has, can still be named.
func (p *pushing) refuseShallow(ctx context.Context) error {
	for i := range p.list {
		c := &p.list[i]
		if !c.open() || c.deletes() {
			continue
		}
		kind, _, err := p.pack.Lookup(ctx, c.new)
		if err != nil {
			return err
		}
		if kind == core.ObjectMissing {
			c.refused = "shallow update not allowed"
		}
	}
	p.say("this push needs commits that neither its shallow clone nor the server has: git fetch --unshallow, then push again")
	return nil
}

// examine finds out what Apply wants to know of the new objects, and refuses changes whose object is not there. All of it is
// asked before the pack is kept: git finds what was received only in the directory where it was received. An object that is
// there has all that it needs, because no pack is taken with an object that links to what is missing.
func (p *pushing) examine(ctx context.Context) error {
	asked := p.asksForce()
	var moved []*command
	for i := range p.list {
		c := &p.list[i]
		if !c.open() || c.deletes() {
			continue
		}
		var err error
		c.kind, c.peeled, err = p.pack.Lookup(ctx, c.new)
		switch {
		case edge.Is[core.TooLarge](err), edge.Is[core.Exhausted](err): // a limit of this object, which does not concern the others
			c.refused = line(err.Error())
			continue
		case err != nil:
			return err
		case c.kind == core.ObjectMissing:
			c.refused = textOf(&core.RefFailure{Reason: core.RefObjectMissing})
			continue
		}
		if asked && !c.old.IsZero() {
			moved = append(moved, c)
		}
	}
	return p.examineMoved(ctx, moved)
}

// examineMoved finds out which commands move a branch forward, all at once.
func (p *pushing) examineMoved(ctx context.Context, moved []*command) error {
	if len(moved) == 0 {
		return nil
	}
	moves := make([]core.Move, len(moved))
	for i, c := range moved {
		moves[i] = core.Move{From: c.old, To: c.new}
	}
	got, err := p.pack.Ancestry(ctx, moves)
	if err != nil {
		return err
	}
	for i, c := range moved {
		c.asked, c.ancestry = true, got[i]
	}
	return nil
}

// asksForce reports whether it matters that a new value descends from the old one: to the token, or to a rule.
func (p *pushing) asksForce() bool {
	return !p.who.Scopes.Has(auth.RefForce) ||
		slices.ContainsFunc(p.repo.Config.Rules, func(r core.RefRule) bool { return r.Deny&core.DenyForce != 0 })
}

// propose proposes what is not refused: one commit for an atomic push, else one for each thousand
// changes. Once the outcome of one commit is unknown, later ones are not tried: they would be based
// on refs that may not be there.
func (p *pushing) propose(ctx context.Context) error {
	if p.none() {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// From here the entry decides, whether or not the client stays.
	ctx = context.WithoutCancel(ctx)
	defer p.s.time(phaseCommit)()
	if p.fresh {
		if err := p.create(ctx); err != nil || p.none() {
			return err
		}
	}
	todo := slices.DeleteFunc(p.sorted(), func(c *command) bool { return !c.open() })
	most := 1000
	if p.caps["atomic"] {
		most = len(todo)
	}
	n := uint64(0)
	for chunk := range slices.Chunk(todo, most) {
		if p.lost {
			for _, c := range chunk {
				c.refused = "not tried, for what became of the changes before it is unknown"
			}
			continue
		}
		p.commit(ctx, n, chunk)
		n++
	}
	return nil
}

// commit proposes one commit and waits for its end. A pack whose commit may still be applied is
// abandoned, not removed. One of a commit that was applied is published, even if only one of its
// changes landed.
func (p *pushing) commit(ctx context.Context, n uint64, chunk []*command) {
	ctx, cancel := context.WithTimeout(ctx, p.s.l.Commit)
	defer cancel()
	done := p.s.o.Backend.Commit(ctx, core.Commit{
		Partition: p.repo.Place.Partition, Principal: p.who.Name, RequestID: p.requestOf(n), Ops: []core.Op{p.transaction(chunk)},
	})
	p.s.stats.outcome(done)
	switch {
	case done.Err != nil && core.OutcomeUnknown(done.Err):
		p.lost = true
		if p.pack != nil {
			p.pack.Abandon()
		}
		for _, c := range chunk {
			c.refused = "outcome unknown, fetch to see"
		}
		return
	case done.Err != nil:
		p.say(done.Err.Error())
		for _, c := range chunk {
			c.refused = line(done.Err.Error())
		}
		return
	}
	p.settle(&done.Results[0], done.At, chunk)
	p.nameConflicts(ctx, chunk)
	if p.pack != nil && slices.ContainsFunc(chunk, func(c *command) bool { return c.refused == "" }) {
		if err := p.pack.Publish(); err != nil { // the refs have moved: what reads them next finds the pack, or says so
			p.s.log.Error("pack not published", "err", err)
		}
	}
}

// requestOf is the id of a push's commit n. It is the same when the client repeats the push, so
// that a commit which was applied is answered again and not applied twice.
func (p *pushing) requestOf(n uint64) core.RequestID {
	if n == 0 {
		return p.id
	}
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(p.id[:], n))
	return core.RequestID(sum[:16])
}

// transaction makes the op, with the facts that Apply judges by. The old value that the client gave
// is a condition of the change, so a ref that moved since check is refused by the entry. The epoch
// lets Apply refuse facts that were checked in an earlier epoch of the repository.
func (p *pushing) transaction(chunk []*command) *core.RefTxn {
	txn := &core.RefTxn{
		Repo: p.repo.Name, ID: p.repo.ID, Changes: make([]core.RefChange, len(chunk)), Partial: !p.caps["atomic"],
		Message: "push", Push: p.id, StagedAt: p.at, Epoch: p.repo.Stats.Epoch, Options: p.options, Via: core.ViaPush,
		Admin: p.who.Scopes.Has(auth.RefAdmin), NoForce: !p.who.Scopes.Has(auth.RefForce),
	}
	if p.kept != nil {
		txn.Packs = []core.Pack{*p.kept}
	}
	for i, c := range chunk {
		if c.deletes() {
			txn.Changes[i] = core.RefChange{Kind: core.OpRefDelete, Name: c.name, HasOld: !c.old.IsZero(), Old: c.old, MissingOK: true}
			continue
		}
		txn.Changes[i] = core.RefChange{
			Kind: core.OpRefUpdate, Name: c.name, HasOld: true, Old: c.old, New: c.new, Type: c.kind, Peeled: c.peeled,
		}
		if c.asked {
			txn.Changes[i].Base, txn.Changes[i].Ancestry = c.old, c.ancestry
		}
	}
	return txn
}

// settle notes what became of each command of a commit. It also tells the client where the push
// stands in the log, unless the client wants it quiet.
func (p *pushing) settle(r *core.Result, at core.At, chunk []*command) {
	if r.Refusal != nil {
		p.refusal(r.Refusal.Fact, chunk)
		return
	}
	var answer *core.RefsAnswer
	if len(r.Ops) > 0 {
		answer = r.Ops[0].Refs
	}
	for i, c := range chunk {
		switch {
		case answer == nil || i >= len(answer.Changes): // a repetition whose answer is not kept
		case answer.Changes[i].Failure != nil:
			c.fail(answer.Changes[i].Failure)
		default:
			c.result = answer.Changes[i]
		}
	}
	index := at.Index
	if r.Index != 0 {
		index = r.Index
	}
	if p.caps["quiet"] && !p.wantsIndex {
		return
	}
	p.say("millrace: p=" + decimal(int64(at.Partition)) + " i=" + decimal(int64(index)))
}

// refusal notes why none of a commit's commands landed.
func (p *pushing) refusal(fact core.Fact, chunk []*command) {
	f, ok := errors.AsType[core.RefRefused](fact)
	if !ok {
		p.say(fact.Error())
		for _, c := range chunk {
			c.refused = line(fact.Error())
		}
		return
	}
	for i := range f.Failures {
		failure := &f.Failures[i]
		if failure.Change >= 0 && failure.Change < len(chunk) {
			chunk[failure.Change].fail(failure)
			continue
		}
		p.say(failure.Error())
		for _, c := range chunk {
			if c.refused == "" {
				c.refused = textOf(failure)
			}
		}
	}
	for _, c := range chunk {
		if c.refused == "" {
			c.refused = "atomic push failure"
		}
	}
}
