package gitobj

import (
	"bufio"
	"bytes"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"syscall"

	"github.com/millrace/millrace/internal/core"
)

const (
	// walkBatch is how many commits are asked for before the first answer is read. The channel holds the answers of that many, so
	// neither side ever waits for the other to read.
	walkBatch = 64
	// walkWords is how many words of 64 bits a set of moves has; walkWidth is how many moves are walked together.
	walkWords = 4
	walkWidth = 64 * walkWords
	// commitCost is the memory of one commit in a walk, with its entry in a map, in bytes; parentCost that of each parent.
	commitCost, parentCost = 224, 8
	// walkStep is how many commits are added or visited between two looks at the limits.
	walkStep = 1024
)

// moveSet is a set of the moves that are walked together, by their place among them.
type moveSet [walkWords]uint64

// add, has and empty take a move by its place among those that are walked together.
func (s *moveSet) add(i int)      { s[i/64] |= 1 << (i % 64) }
func (s *moveSet) has(i int) bool { return s[i/64]>>(i%64)&1 != 0 }
func (s *moveSet) empty() bool    { return *s == moveSet{} }

// and returns what is in both sets.
func (s moveSet) and(o moveSet) moveSet {
	for i := range s {
		s[i] &= o[i]
	}
	return s
}

// without returns what is in s alone.
func (s moveSet) without(o moveSet) moveSet {
	for i := range s {
		s[i] &^= o[i]
	}
	return s
}

// or returns what is in one of the sets or in both.
func (s moveSet) or(o moveSet) moveSet {
	for i := range s {
		s[i] |= o[i]
	}
	return s
}

// walk finds out for many moves whether the new commit descends from the old one. It reads commits from one run of git, each
// once, and keeps their parents and dates.
//
// Moves are walked walkWidth at a time, from both ends towards the past. An ancestor of the old commit cannot lead to it, so
// nothing is looked for there: of each move those commits are visited that one end has and the other has not, the newest
// first. Where dates are wrong, more are. Dates decide how much is read, never what is found.
//
// Why it is right: a set of moves flows from each end to all of its ancestors, along every path,
// and a commit is visited again when it learns of a new one. A move is found when the set of its
// new commit reaches its old commit. It is given up when no queued commit can still lead there,
// which live counts: the set of the new commit is in it, and that of the old one is not.
type walk struct {
	// moves are all that were added, and found the answers so far.
	moves []core.Move
	found map[core.Move]core.Ancestry
	// at is the move that errors name: the first of those that are walked together.
	at core.Move

	// to takes the ids that git is asked for, and from gives the answers, in the same order.
	to   io.Writer
	from <-chan commitHead
	// need counts memory, up to the given bytes in all, and may wait.
	need func(bytes int64) error
	// held is how many bytes are counted, and most how many may be.
	held int64
	most int64 // bytes of it that there may be

	// index finds a commit's place in commits by its id.
	index   map[core.ObjectID]int32
	commits []commit
	// parents are those of all commits, one after another; commit.first and last say which.
	parents []int32
	// alive are the moves of this round that nothing is known of yet.
	alive moveSet
	// olds are, by commit, the moves whose old commit it is.
	olds map[int32]moveSet
	// round counts calls of together: marks of earlier rounds do not hold.
	round int32
	// queue is a heap of commits to visit, the newest first.
	queue []int32
	// live is how many of the queue may lead to an old commit. The round ends when it is 0.
	live int
	// steps counts visits, for looking at ctx now and then.
	steps int
}

// commit is one commit of a walk.
type commit struct {
	// id is the commit's.
	id core.ObjectID
	// read says that git was asked for it; its date and parents are there once that call of read
	// has returned.
	read bool
	// queued says that it is in the queue, and round for which call of together its marks hold.
	queued bool
	live   bool // it is queued and may lead to an old commit
	round  int32
	// date orders the visits; see commitHead.
	date        int64
	first, last int32 // its parents, in walk.parents
	// ofOld are the moves whose old commit descends from this one, or is it.
	ofOld moveSet
	// ofNew are the moves whose new commit does.
	ofNew moveSet
}

// newWalk returns a walk that may take most bytes of memory.
func newWalk(most int64) *walk {
	return &walk{found: make(map[core.Move]core.Ancestry), index: make(map[core.ObjectID]int32), most: most}
}

// add adds a move. Each is added once.
func (w *walk) add(m core.Move) { w.moves = append(w.moves, m) }

// run walks all moves.
func (w *walk) run(ctx context.Context) error {
	for rest := w.moves; len(rest) > 0; {
		n := min(len(rest), walkWidth)
		if err := w.together(ctx, rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// together walks some moves. What was read for earlier moves stays; their marks do not, since they
// belong to another round.
func (w *walk) together(ctx context.Context, moves []core.Move) error {
	w.round++
	w.at, w.alive, w.live, w.queue = moves[0], moveSet{}, 0, w.queue[:0]
	w.olds = make(map[int32]moveSet, len(moves))
	ends := make([]int32, 0, 2*len(moves))
	for i, m := range moves {
		w.alive.add(i)
		ends = append(ends, w.commit(m.From), w.commit(m.To))
		old := w.olds[ends[2*i]]
		old.add(i)
		w.olds[ends[2*i]] = old
	}
	if err := w.readAll(ends); err != nil {
		return err
	}
	for i := range moves {
		var one moveSet
		one.add(i)
		w.mark(ends[2*i], one, moveSet{})
		w.mark(ends[2*i+1], moveSet{}, one)
	}
	for w.live > 0 {
		if w.steps++; w.steps%walkStep == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if err := w.visit(); err != nil {
			return err
		}
	}
	for i, m := range moves {
		w.found[m] = core.FastForward
		if w.alive.has(i) {
			w.found[m] = core.Forced
		}
	}
	return nil
}

// visit tells the parents of the newest commit what it leads to.
func (w *walk) visit() error {
	i := heap.Pop((*byDate)(w)).(int32) //nolint:forcetypeassert // what the heap holds
	c := &w.commits[i]
	c.queued = false
	if c.live {
		c.live = false
		w.live--
	}
	ofOld, ofNew := c.ofOld.and(w.alive), c.ofNew.and(w.alive)
	if both := ofOld.or(ofNew); both.empty() {
		return nil
	}
	parents := w.parents[c.first:c.last]
	if err := w.readAll(parents); err != nil {
		return err
	}
	for _, p := range parents {
		w.mark(p, ofOld, ofNew)
	}
	return nil
}

// mark notes that a commit is an ancestor of the ends of moves, and has it visited if that is news.
func (w *walk) mark(i int32, ofOld, ofNew moveSet) {
	c := &w.commits[i]
	if c.round != w.round {
		c.round, c.ofOld, c.ofNew, c.queued, c.live = w.round, moveSet{}, moveSet{}, false, false
	}
	old, new := c.ofOld.or(ofOld), c.ofNew.or(ofNew)
	if old == c.ofOld && new == c.ofNew {
		return
	}
	c.ofOld, c.ofNew = old, new
	if !c.queued {
		c.queued = true
		heap.Push((*byDate)(w), i)
	}
	if olds, ok := w.olds[i]; ok {
		if reached := olds.and(new).and(w.alive); !reached.empty() {
			w.alive = w.alive.without(reached)
			for _, q := range w.queue { // some may lead to nothing that is still looked for
				w.judge(q)
			}
		}
	}
	w.judge(i)
}

// judge counts whether a queued commit may lead to an old one: it is an ancestor of a new commit, and not of that old one.
func (w *walk) judge(i int32) {
	c := &w.commits[i]
	left := c.ofNew.without(c.ofOld).and(w.alive)
	switch live := !left.empty(); {
	case live && !c.live:
		w.live++
		c.live = true
	case !live && c.live:
		w.live--
		c.live = false
	}
}

// commit returns a commit's place, and makes one for it.
func (w *walk) commit(id core.ObjectID) int32 {
	i, ok := w.index[id]
	if !ok {
		i = int32(len(w.commits)) //nolint:gosec // memory ends before
		w.index[id] = i
		w.commits = append(w.commits, commit{id: id})
	}
	return i
}

// readAll asks git for those commits that were not read.
func (w *walk) readAll(all []int32) error {
	var asked [walkBatch]int32
	n := 0
	for k, i := range all {
		if c := &w.commits[i]; !c.read {
			c.read = true
			asked[n] = i
			n++
		}
		if n == len(asked) || n > 0 && k == len(all)-1 {
			if err := w.read(asked[:n]); err != nil {
				return err
			}
			n = 0
		}
	}
	return nil
}

// read asks for some commits at once, and then takes the answers. The batch is small enough for the
// answers to fit into the channel, so git never has to wait for this goroutine while it waits for
// git.
func (w *walk) read(asked []int32) error {
	lines := make([]byte, 0, walkBatch*(2*idBytes+1))
	for _, i := range asked {
		lines = append(append(lines, w.commits[i].id.String()...), '\n')
	}
	if _, err := w.to.Write(lines); err != nil {
		return err
	}
	for _, i := range asked {
		head, ok := <-w.from
		switch {
		case !ok:
			return syscall.EPIPE // git has ended; how, its caller is told
		case head.id != w.commits[i].id || head.missing:
			return fmt.Errorf("ancestry of %s and %s: commit %s is not there", w.at.From, w.at.To, w.commits[i].id)
		}
		first := len(w.parents)
		for _, p := range head.parents {
			w.parents = append(w.parents, w.commit(p))
		}
		c := &w.commits[i]
		c.date, c.first, c.last = head.date, int32(first), int32(len(w.parents)) //nolint:gosec // memory ends before
	}
	return w.room()
}

// room counts the memory of what was read. More is asked for in steps, ahead of what is needed, and
// not for each commit.
func (w *walk) room() error {
	bytes := int64(len(w.commits))*commitCost + int64(len(w.parents))*parentCost
	switch {
	case bytes > w.most:
		return core.Exhausted{Limit: "git_memory", Max: w.most}
	case bytes < w.held:
		return nil
	}
	w.held = min(bytes+walkStep*commitCost, w.most)
	return w.need(w.held)
}

// byDate is the queue of a walk as a heap.
type byDate walk

// Len to Pop are those of container/heap: the commit with the newest date comes first.
func (w *byDate) Len() int { return len(w.queue) }

func (w *byDate) Less(i, j int) bool { return w.commits[w.queue[i]].date > w.commits[w.queue[j]].date }
func (w *byDate) Swap(i, j int)      { w.queue[i], w.queue[j] = w.queue[j], w.queue[i] }
func (w *byDate) Push(i any)         { w.queue = append(w.queue, i.(int32)) } //nolint:forcetypeassert // see visit

func (w *byDate) Pop() any {
	last := len(w.queue) - 1
	i := w.queue[last]
	w.queue = w.queue[:last]
	return i
}

// commitHead is what a walk wants to know of a commit.
type commitHead struct {
	id      core.ObjectID
	missing bool // or no commit
	parents []core.ObjectID
	date    int64 // seconds, as the committer has them; 0 when they cannot be read
}

// readHeads reads the answers of git cat-file --batch. Each answer is one line, and the content if
// the object is there. Only the head of a commit is kept.
func readHeads(r io.Reader, out chan<- commitHead) error {
	answers := bufio.NewReaderSize(r, 64<<10)
	content := bufio.NewReaderSize(nil, 4<<10)
	for {
		line, err := answers.ReadSlice('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		fields := bytes.Fields(line)
		if len(fields) < 2 {
			return errHead
		}
		var head commitHead
		if head.id, err = core.ParseObjectID(string(fields[0])); err != nil {
			return errHead
		}
		if len(fields) == 3 {
			size, err := strconv.ParseInt(string(fields[2]), 10, 64)
			if err != nil {
				return errHead
			}
			head.missing = string(fields[1]) != core.ObjectCommit.String()
			content.Reset(io.LimitReader(answers, size))
			if err := head.read(content); err != nil {
				return err
			}
			if _, err := io.Copy(io.Discard, content); err != nil {
				return err
			}
			if _, err := answers.Discard(1); err != nil { // the end of a line
				return err
			}
		} else {
			head.missing = true
		}
		out <- head
	}
}

// errHead says that git's answer is in no form that it should have.
var errHead = errors.New("git cat-file gives an answer that makes no sense")

// read reads the head of a commit: tree, parents, author, committer. What comes after does not matter.
func (h *commitHead) read(r *bufio.Reader) error {
	for n := 0; ; n++ {
		line, err := r.ReadSlice('\n')
		whole := err == nil
		for errors.Is(err, bufio.ErrBufferFull) { // a long name; its end has the date
			line, err = r.ReadSlice('\n')
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name, rest, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
		switch {
		case n == 0 && whole: // the tree
		case whole && len(h.parents) == n-1 && string(name) == "parent":
			id, err := core.ParseObjectID(string(rest))
			if err != nil {
				return errHead
			}
			h.parents = append(h.parents, id)
		case whole && string(name) == "committer":
			_, date, _ := bytes.Cut(rest[max(bytes.LastIndexByte(rest, '>'), 0):], []byte(" "))
			date, _, _ = bytes.Cut(date, []byte(" "))
			h.date, _ = strconv.ParseInt(string(date), 10, 64)
			return nil
		case whole && len(line) == 1:
			return nil
		}
	}
}
