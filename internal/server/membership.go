package server

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// JobStatus is a change of membership: the one under way, or the last one.
type JobStatus struct {
	// Number of the job; each change of membership gets the next one.
	ID     uint64 `json:"id"`
	Kind   string `json:"kind"`  // add, remove, replace, promote or rejoin
	State  string `json:"state"` // running, returning, done, failed or cancelled
	Node   uint64 `json:"node"`
	Ending string `json:"ending,omitempty"` // it is being undone, and ends so
	Reason string `json:"reason,omitempty"` // why it failed
}

// Runs reports whether the job has not ended, which includes a job that is being undone.
func (j *JobStatus) Runs() bool {
	return j.State == core.JobRunning.String() || j.State == jobReturning
}

// Membership is the result of a change of membership: the members right after it began.
type Membership struct {
	// Version of the list of members; each change raises it.
	Version uint64         `json:"version"`
	Members []MemberStatus `json:"members"`
	Job     *JobStatus     `json:"job,omitempty"`
	Token   string         `json:"join_token,omitempty"` // of a node that was added; shown once
}

// MemberStatus is one member. Peer, GRPC and HTTP are its addresses for other nodes and for
// clients.
type MemberStatus struct {
	// Id of its replicas in the logs. A node that lost its data comes back under another one.
	Replica uint64 `json:"replica"`
	Node    uint64 `json:"node"`
	// The node's own name, for people; its number is what counts.
	Name string `json:"name,omitempty"`
	Peer string `json:"peer"`
	GRPC string `json:"grpc,omitempty"`
	HTTP string `json:"http,omitempty"`
	// joining, catching_up, learner, promoting, voter or removing.
	State   string `json:"state"`
	Drained bool   `json:"drained,omitempty"` // it is to lead nothing
}

// jobReturning is the state of a job that was taken back, until every shard has again the voters
// that the job was about to take out.
const jobReturning = "returning"

// jobStatus returns the job of a directory; nil if there was none yet.
func jobStatus(d *core.Directory) *JobStatus {
	j := &d.Job
	if j.ID == 0 {
		return nil
	}
	s := &JobStatus{ID: j.ID, Kind: j.Kind.String(), State: j.State.String(), Node: j.Node, Reason: j.Reason}
	if j.Ending != 0 {
		s.Ending = j.Ending.String()
	}
	if d.Returning() {
		s.State = jobReturning
	}
	return s
}

// membership returns a directory in the form that operators see. Placeholders for addresses appear
// as empty texts.
func membership(d *core.Directory) Membership {
	out := Membership{Version: d.Version, Job: jobStatus(d), Members: []MemberStatus{}}
	for _, m := range d.Members {
		out.Members = append(out.Members, MemberStatus{
			Replica: m.Replica, Node: m.Node, Name: m.Name, Peer: known(m.Peer), GRPC: m.API, HTTP: m.HTTP, State: m.State.String(), Drained: m.Drained,
		})
	}
	return out
}

// evenVoters returns a warning if the number of voters is even: such a cluster survives no more
// failures than one with a voter less. Empty if it is odd.
func evenVoters(list []MemberStatus) string {
	voters := 0
	for _, m := range list {
		if m.State == core.MemberVoter.String() {
			voters++
		}
	}
	if voters%2 == 1 || voters == 0 {
		return ""
	}
	return fmt.Sprintf("%d nodes vote: as many may fail as with %d, so add one or remove one", voters, voters-1)
}

// Warnings returns what an operator should change although nothing is wrong: an even number of
// voters, programs of different versions, and a format that could be raised.
func (s *ClusterStatus) Warnings() []string {
	var list []MemberStatus
	for _, n := range s.Nodes {
		list = append(list, MemberStatus{State: n.State})
	}
	var out []string
	if w := evenVoters(list); w != "" && (s.Job == nil || !s.Job.Runs()) {
		out = append(out, w)
	}
	least := uint16(0)
	for _, n := range s.Nodes {
		if n.Reachable && (least == 0 || n.Knows < least) {
			least = n.Knows
		}
	}
	if w := formats(s); w != "" {
		out = append(out, w)
	} else if least > s.Format {
		out = append(out, fmt.Sprintf("format %d is written, and all programs know %d: finalize when none is to be taken back", s.Format, least))
	}
	return out
}

// latest returns the newest replica of each node, ordered by node. list is ascending by replica.
func latest(list []core.Member) (out []core.Member) {
	for i, m := range list { // ascending by replica
		if !slices.ContainsFunc(list[i+1:], func(o core.Member) bool { return o.Node == m.Node }) {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b core.Member) int { return int(a.Node) - int(b.Node) })
	return out
}

// joinHash returns the hash of a join token. The cluster stores only this.
func joinHash(token string) core.JoinHash { return sha256.Sum256([]byte(token)) }

// newJoinToken returns a random join token with 160 bits.
func newJoinToken(r env.Rand) string {
	var b [20]byte
	r.Fill(b[:])
	return "mrj_" + strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
}

const (
	// changeWait bounds the entry that begins a change of membership, not the change itself.
	changeWait = 10 * time.Second
	// changeAgain is the pause before another try while no node leads.
	changeAgain = 100 * time.Millisecond
	// changeTries bounds the tries. With the pauses they cover an election, which takes two seconds
	// at most, and a second one.
	changeTries = 40
	// changeSeen is how long the node that was asked waits until it has applied the change itself;
	// changePoll is how often it looks.
	changeSeen = 2 * time.Second
	changePoll = 5 * time.Millisecond
)

// change asks the leader of shard 0 for a change of membership, and returns the directory that
// results. Its errors are those of node.ChangeMember, except core.NotLeader.
func (c *coordinator) change(ctx context.Context, op *core.MemberChange) (core.Directory, error) {
	if c.peers == nil {
		return core.Directory{}, core.Unavailable{Reason: "no_cluster"}
	}
	ctx, cancel := context.WithTimeout(ctx, changeWait)
	defer cancel()
	return changeUntil(func() (core.Directory, error) { return c.changeOnce(ctx, op) },
		func() bool { return c.server.pause(ctx, changeAgain) == nil })
}

// changeUntil repeats a change until a leader decides it, while pause says that there is time. Once
// a try was sent and not answered, the change may have been made, and a later try may be refused
// because of that; so from then on a refusal means that the outcome is not known.
func changeUntil(once func() (core.Directory, error), pause func() bool) (core.Directory, error) {
	var silent bool
	for try := 0; ; try++ {
		d, err := once()
		r, _ := errors.AsType[refusal](err)
		silent = silent || r.silent
		again := r.silent || leadsNot(err)
		switch {
		case err == nil:
			return d, nil
		case again && try < changeTries && pause():
		case silent:
			return d, core.DeadlineExceeded{Unknown: true}
		case again:
			return d, core.Unavailable{Reason: "no_leader"}
		default:
			return d, err
		}
	}
}

// leadsNot reports whether a node did nothing because it does not lead and serve the shard. Another
// node may, now or soon.
func leadsNot(err error) bool {
	_, moved := errors.AsType[core.NotLeader](err)
	u, down := errors.AsType[core.Unavailable](err)
	return moved || down && !u.Unknown && u.Reason == "no_leader"
}

// changeOnce makes the change if this node leads shard 0, else sends it to the leader as an encoded
// entry. A refusal comes back as the fact that the leader decided, so that the caller sees the same
// error from any node.
func (c *coordinator) changeOnce(ctx context.Context, op *core.MemberChange) (core.Directory, error) {
	// Shard 0 keeps the directory of members.
	leader := c.node.Standings()[0].Leader
	switch leader {
	case 0:
		return core.Directory{}, core.Unavailable{Reason: "no_leader"}
	case c.o.Cluster.Node:
		return c.node.ChangeMember(ctx, op)
	}
	entry := core.AppendEntry(nil, &core.Entry{Format: c.node.Format(), Commits: []core.Commit{{Ops: []core.Op{op}}}})
	r, err := c.ask(ctx, leader, query{Do: "change", Change: entry})
	if len(r.Fact) > 0 {
		res, err := core.DecodeResult(r.Fact)
		if err != nil || res.Refusal == nil {
			return core.Directory{}, fmt.Errorf("answer of node %d makes no sense: %w", leader, err)
		}
		return core.Directory{}, res.Refusal.Fact
	}
	if r, ok := errors.AsType[refusal](err); ok && (r.silent || r.wrong) {
		return core.Directory{}, r
	}
	if err != nil {
		return core.Directory{}, core.Unavailable{Reason: "no_leader"}
	}
	d, err := core.DecodeDirectory(r.Dir)
	if err != nil {
		return core.Directory{}, fmt.Errorf("answer of node %d: %w", leader, err)
	}
	return d, nil
}

// answerChange makes a change that another node asks for; this node leads shard 0. from is that
// node, as its certificate proves. A node may announce addresses only for itself, so they are
// removed from a request about another node.
func (c *coordinator) answerChange(from uint64, entry []byte) told {
	e, err := core.DecodeEntry(entry)
	if err != nil || len(e.Commits) != 1 || len(e.Commits[0].Ops) != 1 {
		return told{Error: "not one change of membership", Wrong: true}
	}
	op, ok := e.Commits[0].Ops[0].(*core.MemberChange)
	if !ok {
		return told{Error: "not a change of membership", Wrong: true}
	}
	switch op.Do {
	case core.MemberSet, core.MemberRegister:
		return told{Error: "a node announces its addresses and its data directory itself", Wrong: true}
	case core.MemberJoin, core.MemberRejoin:
		if from != op.Node { // it announces them when it has joined
			op.Peer, op.API, op.HTTP = "", "", ""
		}
	case core.MemberAdd:
		op.Peer = awaited(op.Node)
	}
	ctx, cancel := context.WithTimeout(context.Background(), changeWait)
	defer cancel()
	d, err := c.node.ChangeMember(ctx, op)
	if fact, ok := errors.AsType[core.Fact](err); ok {
		return told{Error: err.Error(), Fact: core.AppendResult(nil, &core.Result{Refusal: &core.Refusal{Fact: fact}})}
	}
	if err != nil {
		return told{Error: err.Error()}
	}
	return told{Dir: core.AppendDirectory(nil, &d)}
}

// Change makes a change of membership for an operator and logs who asked. For a node that is added,
// the result has its join token.
func (c *coordinator) Change(ctx context.Context, op core.MemberChange) (Membership, error) {
	out, err := c.changeFor(ctx, op)
	attrs := []any{"node", op.Node, "version", out.Version}
	if op.With != 0 {
		attrs = append(attrs, "with", op.With)
	}
	c.o.audit(ctx, verbName(op.Do), err, attrs...)
	return out, err
}

// verbName returns the name that operators use for a change.
func verbName(do core.MemberVerb) string {
	for name, verb := range verbs {
		if verb == do {
			return name
		}
	}
	return "set"
}

// changeFor makes the change and waits until this node has applied it: otherwise an operator who
// asks this node next would not see the job. For an added node it draws the token, of which the log
// gets only the hash.
func (c *coordinator) changeFor(ctx context.Context, op core.MemberChange) (Membership, error) {
	token := ""
	if op.Do == core.MemberAdd {
		token = newJoinToken(c.o.Rand)
		op.Token, op.Peer = joinHash(token), awaited(op.Node)
	}
	if op.Do == core.MemberSet {
		return Membership{}, errNotOthers
	}
	d, err := c.change(ctx, &op)
	if u, ok := errors.AsType[core.DeadlineExceeded](err); ok && u.Unknown && token != "" {
		// Without the token, which only this call knows, no process could join as the node that was perhaps added.
		if added, seen := c.awaitMembers(ctx, func(d *core.Directory) bool {
			return slices.ContainsFunc(d.Members, func(m core.Member) bool { return m.Token == op.Token })
		}); seen {
			d, err = added, nil
		}
	}
	if err != nil {
		return Membership{}, err
	}
	c.awaitMembers(ctx, func(known *core.Directory) bool { return known.Version >= d.Version }) // or who asks it next hears of the job before
	out := membership(&d)
	out.Token = token
	return out, nil
}

// errNotOthers refuses to set a node's addresses from another node.
var errNotOthers = core.Invalid{
	Field: "verb", Reason: "not_supported",
	Message: "a node announces its own addresses: set advertise_peer, advertise_grpc or advertise_http in its settings, and start it again",
}

// awaitMembers waits, at most changeSeen, until the members that this node knows are as wanted. It
// may never see that: the majority that made a change does not wait for slow nodes, and a removed
// node learns of nothing any more.
func (c *coordinator) awaitMembers(ctx context.Context, is func(*core.Directory) bool) (d core.Directory, seen bool) {
	ctx, cancel := context.WithTimeout(ctx, changeSeen)
	defer cancel()
	for {
		if d = c.node.Members(); is(&d) {
			return d, true
		}
		if c.server.pause(ctx, changePoll) != nil {
			return d, false
		}
	}
}

// verbs maps the last part of a path of the operator's socket to the change that it asks for.
var verbs = map[string]core.MemberVerb{
	"add": core.MemberAdd, "remove": core.MemberRemove, "replace": core.MemberReplace, "promote": core.MemberPromote,
	"cancel": core.MemberCancel, "drain": core.MemberDrain, "undrain": core.MemberUndrain,
}

// clusterChange serves a change of membership over the operator's socket.
func (a *admin) clusterChange(w http.ResponseWriter, r *http.Request) {
	p := a.parts.Load()
	if p == nil {
		plain(w, http.StatusServiceUnavailable, a.unready())
		return
	}
	q := r.URL.Query()
	op := core.MemberChange{
		Do: verbs[r.PathValue("verb")], Name: q.Get("name"), Learner: q.Get("learner") == "1",
	}
	if op.Do == 0 {
		plain(w, http.StatusNotFound, "this change of membership does not exist")
		return
	}
	for name, into := range map[string]*uint64{"node": &op.Node, "with": &op.With} {
		if text := q.Get(name); text != "" {
			n, err := strconv.ParseUint(text, 10, 64)
			if err != nil || n == 0 {
				plain(w, http.StatusBadRequest, name+": the number of a node is wanted")
				return
			}
			*into = n
		}
	}
	m, err := p.asks.Change(r.Context(), op)
	if err != nil {
		status, text := refusedChange(err)
		a.refused.count(text)
		plain(w, status, text)
		return
	}
	asJSON(w, m)
}

// changeCodes are all codes with which a change of membership can be refused, in the order of the
// counters in refusedChanges.
var changeCodes = []string{
	"ALREADY_EXISTS", "DEADLINE_EXCEEDED", "INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED", "TOO_LARGE", "UNAVAILABLE",
	"WRONG_STATE",
}

// refusedChanges counts refused changes of membership, by the index of their code in changeCodes.
type refusedChanges [8]atomic.Uint64

// count counts a refusal by the code that text begins with; see refusedChange.
func (r *refusedChanges) count(text string) {
	code, _, _ := strings.Cut(text, " ")
	if i := slices.Index(changeCodes, code); i >= 0 {
		r[i].Add(1)
	}
}

// changeUnknown is what an operator is told of a change that may have been made.
const changeUnknown = "whether the change was made is not known: look at the status"

// refusedChange returns the HTTP status and the text of a refused change. The text begins with the
// code that clients of the API get for the same error.
func refusedChange(err error) (status int, text string) {
	var fact core.Fact
	_ = errors.As(err, &fact) // nil where it is none
	switch f := fact.(type) {
	case core.WrongMembership:
		return http.StatusConflict, "WRONG_STATE " + f.Error()
	case core.FormatHeld:
		return http.StatusConflict, "WRONG_STATE " + f.Error()
	case core.NotFound:
		return http.StatusNotFound, "NOT_FOUND " + f.Error()
	case core.AlreadyExists:
		return http.StatusConflict, fmt.Sprintf("ALREADY_EXISTS %s %s is taken", f.Kind, f.ID)
	case core.Exhausted:
		return http.StatusTooManyRequests, "RESOURCE_EXHAUSTED " + f.Error()
	case core.Invalid:
		return http.StatusBadRequest, "INVALID_ARGUMENT " + f.Error()
	case core.TooLarge:
		return http.StatusRequestEntityTooLarge, "TOO_LARGE " + f.Error()
	case core.Unavailable:
		if f.Reason == "no_cluster" {
			return http.StatusConflict, "WRONG_STATE this server is by itself: start it with a cluster id to let it grow"
		}
		text := "UNAVAILABLE " + f.Error()
		if f.Unknown {
			text += "; " + changeUnknown
		}
		return http.StatusServiceUnavailable, text
	case core.DeadlineExceeded:
		return http.StatusServiceUnavailable, "DEADLINE_EXCEEDED " + changeUnknown
	}
	return http.StatusServiceUnavailable, "UNAVAILABLE " + err.Error()
}
