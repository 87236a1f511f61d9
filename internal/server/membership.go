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

// JobStatus is a change of membership.
type JobStatus struct {
	ID     uint64 `json:"id"`
	Kind   string `json:"kind"`  // add, remove, replace, promote or rejoin
	State  string `json:"state"` // running, returning, done, failed or cancelled
	Node   uint64 `json:"node"`
	Ending string `json:"ending,omitempty"` // it is being undone, and ends so
	Reason string `json:"reason,omitempty"` // why it failed
}

// Runs reports whether the job has not ended.
func (j *JobStatus) Runs() bool {
	return j.State == core.JobRunning.String() || j.State == jobReturning
}

// Membership is what a change of membership has led to.
type Membership struct {
	Version uint64         `json:"version"`
	Members []MemberStatus `json:"members"`
	Job     *JobStatus     `json:"job,omitempty"`
	Token   string         `json:"join_token,omitempty"` // of a node that was added; shown once
}

// MemberStatus is one member.
type MemberStatus struct {
	Replica uint64 `json:"replica"`
	Node    uint64 `json:"node"`
	Name    string `json:"name,omitempty"`
	Peer    string `json:"peer"`
	GRPC    string `json:"grpc,omitempty"`
	HTTP    string `json:"http,omitempty"`
	State   string `json:"state"`
	Drained bool   `json:"drained,omitempty"` // it is to lead nothing
}

// jobReturning is how a job looks that was taken back, until all shards have again whom it was about to take out of them.
const jobReturning = "returning"

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

func membership(d *core.Directory) Membership {
	out := Membership{Version: d.Version, Job: jobStatus(d), Members: []MemberStatus{}}
	for _, m := range d.Members {
		out.Members = append(out.Members, MemberStatus{
			Replica: m.Replica, Node: m.Node, Name: m.Name, Peer: known(m.Peer), GRPC: m.API, HTTP: m.HTTP, State: m.State.String(), Drained: m.Drained,
		})
	}
	return out
}

// evenVoters warns of a number of voters that makes a cluster no safer than one fewer; empty: it is odd.
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

// Warnings says what an operator should look at though all is well.
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

// latest returns the newest member of each node, by node.
func latest(list []core.Member) (out []core.Member) {
	for i, m := range list { // ascending by replica
		if !slices.ContainsFunc(list[i+1:], func(o core.Member) bool { return o.Node == m.Node }) {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b core.Member) int { return int(a.Node) - int(b.Node) })
	return out
}

// joinHash is what the cluster keeps of a join token.
func joinHash(token string) core.JoinHash { return sha256.Sum256([]byte(token)) }

// newJoinToken makes a join token at random.
func newJoinToken(r env.Rand) string {
	var b [20]byte
	r.Fill(b[:])
	return "mrj_" + strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
}

const (
	// changeWait bounds a change of membership: the entry that begins its job, not the job.
	changeWait = 10 * time.Second
	// changeAgain is the pause before another try while no node leads.
	changeAgain = 100 * time.Millisecond
	// changeTries is how often: an election takes two seconds at most, and seldom a second one.
	changeTries = 40
	// changeSeen is how long the node that was asked waits until it knows of a change itself.
	changeSeen = 2 * time.Second
	changePoll = 5 * time.Millisecond
)

// change asks the leader of shard 0 for a change of membership, and returns the directory that it led to. Errors: as
// node.ChangeMember, but for core.NotLeader.
func (c *coordinator) change(ctx context.Context, op *core.MemberChange) (core.Directory, error) {
	if c.peers == nil {
		return core.Directory{}, core.Unavailable{Reason: "no_cluster"}
	}
	ctx, cancel := context.WithTimeout(ctx, changeWait)
	defer cancel()
	return changeUntil(func() (core.Directory, error) { return c.changeOnce(ctx, op) },
		func() bool { return c.server.pause(ctx, changeAgain) == nil })
}

// changeUntil tries a change until somebody leads who decides it, while pause says that there is time. Once a try was sent and not
// answered, a later one may be refused because of what it did: then the outcome is not known.
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

// leadsNot reports whether a node did nothing because it does not lead and serve: another one may, now or soon.
func leadsNot(err error) bool {
	_, moved := errors.AsType[core.NotLeader](err)
	u, down := errors.AsType[core.Unavailable](err)
	return moved || down && !u.Unknown && u.Reason == "no_leader"
}

func (c *coordinator) changeOnce(ctx context.Context, op *core.MemberChange) (core.Directory, error) {
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

// answerChange makes a change that another node asks this one for, which leads. What a node alone may say is not taken from
// others, though they are members.
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

// Change makes a change of membership for an operator. A node that is added gets a join token.
func (c *coordinator) Change(ctx context.Context, op core.MemberChange) (Membership, error) {
	out, err := c.changeFor(ctx, op)
	attrs := []any{"node", op.Node, "version", out.Version}
	if op.With != 0 {
		attrs = append(attrs, "with", op.With)
	}
	c.o.audit(ctx, verbName(op.Do), err, attrs...)
	return out, err
}

// verbName is a change of membership as operators name it.
func verbName(do core.MemberVerb) string {
	for name, verb := range verbs {
		if verb == do {
			return name
		}
	}
	return "set"
}

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

// errNotOthers refuses to set a node's addresses from outside.
var errNotOthers = core.Invalid{
	Field: "verb", Reason: "not_supported",
	Message: "a node announces its own addresses: set advertise_peer, advertise_grpc or advertise_http in its settings, and start it again",
}

// awaitMembers waits a while until this node knows the members as wanted. The majority that made a change does not wait for a
// learner or a slow node, and a node that is not a member any more may never learn of it.
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

// verbs are the changes that the operator's socket takes, by the last part of its path.
var verbs = map[string]core.MemberVerb{
	"add": core.MemberAdd, "remove": core.MemberRemove, "replace": core.MemberReplace, "promote": core.MemberPromote,
	"cancel": core.MemberCancel, "drain": core.MemberDrain, "undrain": core.MemberUndrain,
}

// clusterChange makes the change of membership that the request describes.
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

// changeCodes are the codes with which changes of membership are refused.
var changeCodes = []string{
	"ALREADY_EXISTS", "DEADLINE_EXCEEDED", "INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED", "TOO_LARGE", "UNAVAILABLE",
	"WRONG_STATE",
}

// refusedChanges counts changes of membership that were refused, in the order of changeCodes.
type refusedChanges [8]atomic.Uint64

// count takes what refusedChange says, which begins with a code.
func (r *refusedChanges) count(text string) {
	code, _, _ := strings.Cut(text, " ")
	if i := slices.Index(changeCodes, code); i >= 0 {
		r[i].Add(1)
	}
}

// refusedChange says why a change of membership was refused, by the code that clients of the API get too.
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
		return http.StatusServiceUnavailable, "UNAVAILABLE " + f.Error()
	case core.DeadlineExceeded:
		return http.StatusServiceUnavailable, "DEADLINE_EXCEEDED whether the change was made is not known: look at the status"
	}
	return http.StatusServiceUnavailable, "UNAVAILABLE " + err.Error()
}
