package api

import (
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"time"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/strictjson"
)

const (
	// sortedQueues is how many queues are read to sort or choose some of them: about 5 MB, of one call.
	sortedQueues = 10_000
	// stuckAfter is for how long a task must have been ready, while none of its queue runs, for the queue to count as stuck.
	stuckAfter = time.Minute
)

// The words of a list of queues.
var (
	queueSorts = []string{"name", "ready", "oldest", "dead", "rate"}
	queueOnly  = []string{"paused", "stuck", "dead"}
)

// queueChoice says which queues a list has, and in which order.
type queueChoice struct {
	prefix, sort, only string
	read               core.ReadOptions
	// now is the time of the server, as OldestReady is shown.
	now core.ShardTime
	// rates has how many tasks each queue completed lately, in thousandths per second, for the order by rate. What is not known is absent.
	rates map[string]uint64
}

// queueChoiceOf reads what a request chooses. plain says that it is all queues by name.
func queueChoiceOf(in *pb.ListQueuesRequest) (q queueChoice, plain bool, fact core.Fact) {
	q = queueChoice{prefix: in.GetPrefix(), sort: cmp.Or(in.GetSort(), queueSorts[0]), only: in.GetOnly(), read: readOptions(0, in.GetStale())}
	switch {
	case q.prefix != "" && !isName(q.prefix, true):
		fact = edge.Invalid("prefix", "must be the beginning of a name")
	case !slices.Contains(queueSorts, q.sort):
		fact = edge.Invalid("sort", strictjson.MustBe(queueSorts))
	case q.only != "" && !slices.Contains(queueOnly, q.only):
		fact = edge.Invalid("only", strictjson.MustBe(queueOnly))
	}
	return q, q.prefix == "" && q.sort == queueSorts[0] && q.only == "", fact
}

// has reports whether a queue is of the list.
func (q *queueChoice) has(s *core.QueueStats) bool {
	switch q.only {
	case "paused":
		return s.Paused.Since != 0
	case "dead":
		return s.States[core.Dead] > 0
	case "stuck":
		return s.Paused.Since == 0 && s.States[core.Running] == 0 && s.OldestReady != 0 &&
			s.OldestReady.Add(core.Millis(stuckAfter.Milliseconds())) <= q.now
	}
	return true
}

// place is where a queue stands: those with lower numbers come first, and of the same number those with lower names.
func (q *queueChoice) place(s *core.QueueStats) uint64 {
	switch q.sort {
	case "ready":
		return math.MaxUint64 - s.States[core.Ready]
	case "dead":
		return math.MaxUint64 - s.States[core.Dead]
	case "rate":
		if rate, known := q.rates[s.Queue]; known {
			return math.MaxUint64 - 1 - rate // what is not known comes behind what is 0
		}
		return math.MaxUint64
	case "oldest":
		if s.OldestReady == 0 {
			return math.MaxUint64
		}
		return uint64(s.OldestReady)
	}
	return 0
}

// chosenQueues is queues for a choice. It reads all queues that may be of it: counters have no index.
func (c *call) chosenQueues(ctx context.Context, q queueChoice, cursor string, limit int) (page []core.QueueStats, next string, at core.At, err error) {
	from, after, fact := readQueueCursor(cursor)
	if fact != nil {
		return nil, "", at, fact
	}
	begin := ""
	if q.prefix != "" {
		begin = q.prefix[:len(q.prefix)-1] // it comes before all names with the prefix
	}
	all, at, err := c.queues(ctx, begin, sortedQueues+1, q.read)
	if err != nil {
		return nil, "", at, err
	}
	if len(all) > sortedQueues && strings.HasPrefix(all[sortedQueues].Queue, q.prefix) {
		return nil, "", at, edge.Invalid("prefix", "must be given, or be longer: at most 10000 queues are sorted or looked through")
	}
	if q.sort == "rate" {
		q.rates = make(map[string]uint64)
		for i := range all {
			if rates, _, ok := c.queueRates(all[i].Queue); ok {
				q.rates[all[i].Queue] = uint64(rates.Completed * 1000)
			}
		}
	}
	for i := range all {
		s := &all[i]
		place := q.place(s)
		if strings.HasPrefix(s.Queue, q.prefix) && q.has(s) && c.who.ReachesQueue(s.Queue) && (place > from || place == from && s.Queue > after) {
			page = append(page, *s)
		}
	}
	slices.SortFunc(page, func(a, b core.QueueStats) int {
		return cmp.Or(cmp.Compare(q.place(&a), q.place(&b)), strings.Compare(a.Queue, b.Queue))
	})
	if len(page) > limit {
		page = page[:limit]
		last := &page[limit-1]
		next = showCursor(append(binary.BigEndian.AppendUint64(nil, q.place(last)), last.Queue...))
	}
	return page, next, at, nil
}

// readQueueCursor returns where a page of chosen queues ended: the place of its last queue, and its name. Counters change
// between pages, so a queue may be on two pages, or on none.
func readQueueCursor(s string) (place uint64, name string, fact core.Fact) {
	b, fact := readCursor(s)
	if fact != nil || len(b) == 0 {
		return 0, "", fact
	}
	if len(b) < 8 || !isName(string(b[8:]), true) {
		return 0, "", badCursor()
	}
	return binary.BigEndian.Uint64(b), string(b[8:]), nil
}
