package queue

import (
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// Ready tasks of a lane lie in classes, one after the other in the index: first those whose place an entry before format
// 2 made, and then those of each priority, 9 first. Within the class of a priority they lie by ready time,
// which no aging changes. Which class is served next is decided when a task is taken, by the first task of
// each class and the aging of that moment. So a change of the aging moves no row.

// classes is the number of classes; class 0 has the places made before format 2.
const classes = 1 + maxPriority + 1

// classOf returns the class of a sort key. The high bit tells places of format 2 from older ones.
func classOf(sort uint64) int {
	if sort < classSort {
		return 0
	}
	return 1 + int(sort>>classShift&0xf)
}

// classRange bounds the places of a class of a lane. The end of the last class is the end of the
// lane's rows.
func (m *Machine) classRange(ln *lane, class int) (from, to []byte) {
	return classRange(m.p, ln.queue.number, ln.number, class)
}

// classRange bounds the rows of a class of a lane in the ready index, without a Machine.
func classRange(p core.Partition, queue uint32, lane uint64, class int) (from, to []byte) {
	from, to = keys.PlaceRange(p, queue, lane)
	if class > 0 {
		from = keys.AppendPlace(nil, p, queue, lane, classSort|uint64(class-1)<<classShift, 0)
	}
	if class < classes-1 {
		to = keys.AppendPlace(nil, p, queue, lane, classSort|uint64(class)<<classShift, 0)
	}
	return from, to
}

// heads are the first ready tasks of each class of a lane; nil where the class has none, or where
// none was loaded. They are a cache: what is granted does not depend on how many are kept.
type heads struct {
	// The lists by class.
	of [classes]*headList
	// one is the list of the class that came first: most lanes have no other class. taken says
	// that it is in use.
	one headList
	//
	taken bool
}

// list makes the list of a class, without an allocation for the first class of a lane.
func (h *heads) list(class int) *headList {
	if h.of[class] = &h.one; h.taken {
		h.of[class] = &headList{}
	}
	h.taken = true
	return h.of[class]
}

// headList are the first ready tasks of a class, in order: all rows of the index up to bound, or
// all there are unless more is set. A row beyond bound is not in it even when there is room, since
// rows between may be only in the store.
type headList struct {
	// rows from first on are live. Those before it were popped and leave room that compact takes back.
	rows []head
	// Position in rows of the first live one.
	first int
	// Rows beyond bound are in the store.
	more bool
	// bound, with more, is the last row that was taken in; rows beyond it are only in the store.
	bound head

	// oldSeq is the place of the row of class 0 for which oldReady and oldPriority are known. Its
	// sort key does not tell them.
	oldSeq uint64
	// When the task of that row became ready, and its priority.
	oldReady    core.ShardTime
	oldPriority uint8
}

// head is one ready task: its place and its id.
type head struct {
	// The place: by sort key, then by the order in which places were given.
	sort, seq uint64
	// The task.
	id core.TaskID
	// fresh, together with epoch, is its place in the Machine's fresh, from 1; 0: its records are stored.
	fresh int32
	// epoch is the entry for which fresh holds. A head of an older entry has its row in the index by now.
	epoch uint32
	// What the task costs; 0: 1.
	cost uint32
}

// before orders by place. No two tasks of a queue have the same place.
func (h head) before(o head) bool { return h.sort < o.sort || h.sort == o.sort && h.seq < o.seq }

// live are the rows that were not popped.
func (h *headList) live() []head { return h.rows[h.first:] }

// insert takes a row in where it belongs, and drops the last one beyond limit. A row beyond bound
// is left to the store. Most rows come last, since ready times rise.
func (h *headList) insert(row head, limit int) {
	if h.more && h.bound.before(row) {
		return
	}
	live := h.live()
	n := len(live)
	if n == 0 || live[n-1].before(row) {
		h.compact()
		h.rows = append(h.rows, row)
	} else {
		i, _ := slices.BinarySearchFunc(live, row, compareHeads)
		h.rows = slices.Insert(h.rows, h.first+i, row)
	}
	if len(h.live()) > limit {
		h.rows = h.rows[:len(h.rows)-1]
		h.more, h.bound = true, h.rows[len(h.rows)-1]
	}
}

// compact moves the rows to the front when half of the room before them is used up, so that
// appending costs the same on average.
func (h *headList) compact() {
	if h.first > 32 && 2*h.first > len(h.rows) {
		h.rows = h.rows[:copy(h.rows, h.live())]
		h.first = 0
	}
}

// drop takes a row out whose insertion is undone.
func (h *heads) drop(row head) {
	list := h.of[classOf(row.sort)]
	if list == nil {
		return
	}
	if i, ok := slices.BinarySearchFunc(list.live(), row, compareHeads); ok {
		list.rows = slices.Delete(list.rows, list.first+i, list.first+i+1)
	}
}

// compareHeads is before, as sorting and searching want it.
func compareHeads(a, b head) int {
	switch {
	case a.before(b):
		return -1
	case b.before(a):
		return 1
	}
	return 0
}

// pushHead notes a row that is written to the ready index, now or at the entry's end. It must come
// before the task is counted as ready: while none is counted and no heads are loaded, the new row
// is all there is.
func (m *Machine) pushHead(ln *lane, row head) {
	if ln.heads == nil {
		if ln.ready > 0 {
			return // not loaded: it is found with the others
		}
		m.giveHeads(ln)
	}
	class := classOf(row.sort)
	list := ln.heads.of[class]
	if list == nil {
		list = ln.heads.list(class)
	}
	list.insert(row, m.headsOf(ln))
	m.log.pushed(ln, row)
}

// firstList is the list whose first task is served next, of a lane that has a ready task. It loads the lane's heads where they
// are not.
func (m *Machine) firstList(v core.View, ln *lane) (*headList, error) {
	if ln.heads == nil {
		m.giveHeads(ln)
		if err := m.loadHeads(v, ln); err != nil {
			return nil, err
		}
	}
	list, err := m.nextList(v, ln)
	if err == nil && list == nil {
		err = errs.Corruptf("lane %d of queue %q counts %d ready tasks, and its index has none", ln.number, ln.queue.name, ln.ready)
	}
	return list, err
}

// popHead takes the first ready task of a lane that has one. It must come before the task is
// counted as running. With the last ready task the heads go too, so that an empty lane takes no
// memory for them.
func (m *Machine) popHead(v core.View, ln *lane) (head, error) {
	m.log.popped(ln)
	list, err := m.firstList(v, ln)
	if err != nil {
		return head{}, err
	}
	row := list.rows[list.first]
	list.first++
	if ln.ready == 1 { // it was the last
		m.dropHeads(ln)
	}
	return row, nil
}

// nextList returns the list of the class whose first task is served next; nil when no class has
// one. It compares the first tasks of all classes by rankOf. A lane with one class, which is the
// usual case, ranks nothing.
func (m *Machine) nextList(v core.View, ln *lane) (best *headList, err error) {
	var class int // of best
	var rank uint64
	for c, list := range ln.heads.of {
		if list == nil {
			continue
		}
		if len(list.live()) == 0 {
			if list.more {
				if err := m.refill(v, ln, c); err != nil {
					return nil, err
				}
			}
			if len(list.live()) == 0 {
				ln.heads.of[c] = nil
				continue
			}
		}
		if best == nil {
			best, class = list, c
			continue
		}
		if rank == 0 { // that of best is not known while there is no other
			if rank, err = m.rankOf(v, ln.queue, best, class); err != nil {
				return nil, err
			}
		}
		r, err := m.rankOf(v, ln.queue, list, c)
		if err != nil {
			return nil, err
		}
		if r < rank || r == rank && list.rows[list.first].seq < best.rows[best.first].seq {
			best, class, rank = list, c, r
		}
	}
	return best, nil
}

// rankOf places the first task of a class among those of other classes: the smaller rank goes
// first. Class 0 stores no ready time and priority in its sort key, so they are read from the
// record, once for each task.
func (m *Machine) rankOf(v core.View, l *queueState, list *headList, class int) (uint64, error) {
	row := &list.rows[list.first]
	if class > 0 {
		return sortKey(readyOf(row.sort), uint8(maxPriority-(class-1)), l.aging()), nil
	}
	if list.oldSeq != row.seq {
		rec, err := m.mustRecord(v, row.id, core.Ready)
		if err != nil {
			return 0, err
		}
		list.oldSeq, list.oldReady, list.oldPriority = row.seq, rec.readyAt, rec.priority
	}
	return sortKey(list.oldReady, list.oldPriority, l.aging()), nil
}

// loadHeads reads the first rows of each class of a lane that has some. It seeks from class to class, so that
// classes without rows cost one seek together.
func (m *Machine) loadHeads(v core.View, ln *lane) error {
	for c := 0; c < classes; c++ {
		next, err := m.nextClass(v, ln, c)
		if err != nil {
			return err
		}
		for ; c < next && c < classes; c++ { // those before it have no stored row, and may have fresh ones
			m.loadFresh(ln, c)
		}
		if c == classes {
			return nil
		}
		ln.heads.list(c).more = true
		if err := m.refill(v, ln, c); err != nil {
			return err
		}
	}
	return nil
}

// loadFresh makes the list of a class that has only tasks of this entry, if there are some.
func (m *Machine) loadFresh(ln *lane, class int) {
	var list headList
	if m.mergeFresh(ln, &list, class); len(list.rows) > 0 {
		list.bound = list.rows[len(list.rows)-1]
		*ln.heads.list(class) = list
	}
}

// nextClass returns the first class from the given one on that has a stored row, or classes.
func (m *Machine) nextClass(v core.View, ln *lane, class int) (int, error) {
	from, _ := m.classRange(ln, class)
	_, to := m.classRange(ln, classes-1)
	class = classes
	err := core.ScanRows(v, from, to, func(key, _ []byte) (bool, error) {
		_, sort, _, ok := keys.DecodePlace(key)
		if !ok || classOf(sort) >= classes {
			return false, errs.Corruptf("row %x of the index of ready tasks makes no sense", key)
		}
		class = classOf(sort)
		return false, nil
	})
	return class, err
}

// refill reads the next rows of a class, those after the ones that were taken in, up to the limit
// of heads. Fresh tasks that belong there are merged in.
func (m *Machine) refill(v core.View, ln *lane, class int) error {
	h := ln.heads.of[class]
	from, to := m.classRange(ln, class)
	if h.bound != (head{}) {
		from = keys.AppendPlace(nil, m.p, ln.queue.number, ln.number, h.bound.sort, h.bound.seq+1)
	}
	h.more = false
	h.rows, h.first = h.rows[:0], 0
	most := m.headsOf(ln)
	err := core.ScanRows(v, from, to, func(key, value []byte) (bool, error) {
		_, sort, seq, ok := keys.DecodePlace(key)
		if !ok || len(value) < 16 {
			return false, errs.Corruptf("row of the index of ready tasks makes no sense")
		}
		if len(h.rows) == most {
			h.more = true
			return false, nil
		}
		row := head{sort: sort, seq: seq, id: toID(value[:16])}
		if len(value) > 16 {
			r := reader{b: value[16:]}
			if row.cost = r.u32(); r.bad || len(r.b) > 0 {
				return false, errs.Corruptf("row of the index of ready tasks makes no sense")
			}
		}
		h.rows = append(h.rows, row)
		return true, nil
	})
	if err != nil {
		return err
	}
	m.mergeFresh(ln, h, class)
	if len(h.rows) > 0 {
		h.bound = h.rows[len(h.rows)-1]
	}
	return nil
}
