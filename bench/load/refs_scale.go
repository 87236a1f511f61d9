package load

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/millrace/millrace/bench"
	millrace "github.com/millrace/millrace/sdk/go"
)

// What a row of many refs does, in addition to its shape.
const (
	// scaleSmall is the number of refs of the repository that a large one is compared with.
	scaleSmall = 100
	// scaleMany is the number of refs of a large transaction.
	scaleMany = 100
	// scaleRemake is the length of a client's cycle: in each, one transaction deletes a ref, and
	// the next creates it again.
	scaleRemake = 8
	// scaleStride is a prime, by which turns move through the repository, so that they meet all parts of it.
	scaleStride = 7919
	// memoryLook is how often a server's memory is read while it lists refs.
	memoryLook = 50 * time.Millisecond
)

// scaleRun is a repository with many refs, or many clients of one.
type scaleRun struct {
	rig *bench.Rig
	// stock has the commits that refs are put at.
	stock refsStock
	// client loads refs. client and ledger are shared by all goroutines.
	client *millrace.Client
	ledger *bench.RefLedger
}

// RefsScale measures what grows: refs, clients, nodes. The row's kind says which.
func RefsScale(ctx context.Context, rig *bench.Rig) (err error) {
	if rig.Ceiling {
		return errors.New("no null server reads what this suite sends")
	}
	if rig.Shape.Kind == "complete-ref" {
		return completeRef(ctx, rig)
	}
	if rig.Shape.Kind == "nodes-3" {
		return refsNodes(ctx, rig)
	}
	s := &scaleRun{rig: rig}
	if s.stock, err = newRefsStock(ctx, rig); err != nil {
		return err
	}
	if s.client, err = rig.Dial(ctx, 0); err != nil {
		return err
	}
	defer s.client.Close() //nolint:errcheck // every call was answered, or an error tells
	rig.Refs = s.stock.ledger(refsPrefix, true)
	s.ledger = rig.Refs
	switch rig.Shape.Kind {
	case "clients-64":
		return s.clients(ctx)
	case "ls-refs-1m":
		return s.list(ctx)
	case "load-1m":
		return s.loadAll(ctx)
	}
	return s.grow(ctx)
}

// clients lets many clients move refs of their own at once, each waiting for its answer. Client i
// has the refs 2i and 2i+1: the first it moves, the second it deletes and makes again.
func (s *scaleRun) clients(ctx context.Context) error {
	ours := make([]*ourRefs, s.rig.Shape.Loops())
	defer func() {
		for _, o := range ours {
			if o != nil {
				_ = o.close() // every transaction was answered
			}
		}
	}()
	for i := range ours {
		var err error
		if ours[i], err = newOurRefs(ctx, s.rig); err != nil {
			return err
		}
		both := []int{2 * i, 2*i + 1}
		err = ours[i].transact(ctx, s.changes(both, "", s.stock.commits[0]))
		if noteRefs(s.ledger, both, s.stock.commits[0], err); err != nil {
			return err
		}
	}
	op := s.rig.Op("update")
	var all sync.WaitGroup
	for i, o := range ours {
		all.Go(func() {
			for n := 0; !s.rig.Done() && ctx.Err() == nil; n++ {
				ref, old, new := 2*i, s.stock.commits[n%2], s.stock.commits[(n+1)%2]
				switch k := n % scaleRemake; k { // an even number: the other ref's turns cost none of the first one's
				case scaleRemake - 2:
					ref, old, new = 2*i+1, s.stock.commits[0], ""
				case scaleRemake - 1:
					ref, old, new = 2*i+1, "", s.stock.commits[0]
				}
				began := time.Now()
				err := o.transact(ctx, s.changes([]int{ref}, old, new))
				noteRefs(s.ledger, []int{ref}, new, err)
				op.Record(i, began, 1, err)
			}
		})
	}
	err := s.rig.Measure(ctx)
	all.Wait()
	return err
}

// changes are the same change of several refs, named by the ledger's numbers.
func (s *scaleRun) changes(numbers []int, old, new string) []refsChange {
	out := make([]refsChange, len(numbers))
	for i, n := range numbers {
		out[i] = refsChange{s.ledger.Name(n), old, new}
	}
	return out
}

// load makes or deletes n refs by the bulk call. change gives name and number of the i-th one; a
// negative number is not in the ledger. An empty object deletes. The ledger notes refs before the
// call, which must change all of them or the run fails.
func (s *scaleRun) load(ctx context.Context, n int, object string, change func(i int) (name string, number int)) error {
	var seq iter.Seq[millrace.RefChange] = func(yield func(millrace.RefChange) bool) {
		// The sequence is read once, while the call streams it.
		for i := range n {
			name, number := change(i)
			if number >= 0 {
				s.ledger.Acked(number, object)
			}
			c := millrace.CreateRef(name, object)
			if object == "" {
				c = millrace.DeleteRef(name, "")
			}
			if !yield(c) {
				return
			}
		}
	}
	out, err := s.client.Repo(refsRepo).Load(ctx, seq)
	if err != nil {
		return fmt.Errorf("load %d refs: %w", n, err)
	}
	if out.Changed != uint64(n) {
		return fmt.Errorf("load %d refs: %d were changed; first failure %+v", n, out.Changed, out.Failures[:min(1, len(out.Failures))])
	}
	return nil
}

// even gives the refs of a loaded repository even numbers, so that others can come between them in
// order of name.
func (s *scaleRun) even(i int) (string, int) { return s.ledger.Name(2 * i), 2 * i }

// grow measures transactions on a small repository, then on the same one with many refs. The worst
// ratio of a median to its median before is the headline: 1 means that size does not matter.
func (s *scaleRun) grow(ctx context.Context) error {
	if err := s.load(ctx, scaleSmall, s.stock.commits[0], s.even); err != nil {
		return err
	}
	ours, err := newOurRefs(ctx, s.rig)
	if err != nil {
		return err
	}
	defer ours.close() //nolint:errcheck // every transaction was answered
	w := &scaleWork{scaleRun: s, ours: ours}
	before, err := w.phase(ctx, scaleSmall)
	if err != nil {
		return err
	}
	total := max(s.rig.Shape.Prefill, 2*scaleSmall)
	more := func(i int) (string, int) { return s.even(scaleSmall + i) }
	if err := s.load(ctx, total-scaleSmall, s.stock.commits[0], more); err != nil {
		return err
	}
	if s.rig.Shape.Kind == "tombstones" {
		if err := s.bury(ctx, total/2); err != nil {
			return err
		}
	}
	// after are the medians of the large repository, by kind of transaction.
	var after map[string]float64
	err = s.rig.MeasureWork(ctx, func(ctx context.Context) (err error) {
		after, err = w.phase(ctx, total)
		return err
	})
	if err != nil {
		return err
	}
	worst := 0.0
	for name, v := range after {
		s.rig.Metric(name+"_p50_us", v, "µs")
		s.rig.Metric(name+"_p50_us_of_100_refs", before[name], "µs")
		if before[name] > 0 {
			worst = max(worst, v/before[name])
		}
	}
	s.rig.Metric("p50_ratio_to_100_refs", worst, "×")
	return nil
}

// bury makes and deletes n refs below the name of a ref that transactions make and delete from then
// on, so that the check for a name below it meets what deletes leave behind.
func (s *scaleRun) bury(ctx context.Context, n int) error {
	below := func(i int) (string, int) { return fmt.Sprintf("%s/%06d", s.ledger.Name(1), i), -1 }
	if err := s.load(ctx, n, s.stock.commits[0], below); err != nil {
		return err
	}
	return s.load(ctx, n, "", below)
}

// scaleWork is one client that updates, makes and deletes refs all over a repository, and times
// each kind of transaction.
type scaleWork struct {
	*scaleRun
	// ours is the session that all transactions of the work use.
	ours *ourRefs
	// next is where in the repository the last turn was.
	next int
}

// phase works for the length of the window in a repository with the given number of refs. It
// returns the median in microseconds of each kind of operation.
func (w *scaleWork) phase(ctx context.Context, refs int) (map[string]float64, error) {
	// hists has the latencies in microseconds, by kind of transaction.
	hists := map[string]*hdrhistogram.Histogram{}
	for end := time.Now().Add(w.rig.Window); time.Now().Before(end) && ctx.Err() == nil; {
		for _, size := range []int{1, scaleMany} {
			if err := w.turn(ctx, refs, size, hists); err != nil {
				return nil, err
			}
		}
	}
	out := map[string]float64{}
	for name, h := range hists {
		out[name] = float64(h.ValueAtQuantile(50))
	}
	return out, ctx.Err()
}

// turn makes refs, deletes them again and updates others there and back, each in one transaction,
// so that the repository is as before. New refs have odd numbers.
func (w *scaleWork) turn(ctx context.Context, refs, size int, hists map[string]*hdrhistogram.Histogram) error {
	// fresh are refs that are made and deleted, there are refs that exist.
	fresh, there := make([]int, size), make([]int, size)
	w.next = (w.next + scaleStride) % refs
	for i := range size {
		fresh[i], there[i] = 2*(1+(w.next+i)%(refs-1))+1, 2*((w.next+i)%refs)
	}
	fresh[0] = 1 // below which refs may have been buried
	one, two := w.stock.commits[0], w.stock.commits[1]
	if err := w.timed(ctx, hists, fmt.Sprintf("create_%d", size), fresh, "", one); err != nil {
		return err
	}
	if err := w.timed(ctx, hists, fmt.Sprintf("delete_%d", size), fresh, one, ""); err != nil {
		return err
	}
	if err := w.timed(ctx, hists, fmt.Sprintf("update_%d", size), there, one, two); err != nil {
		return err
	}
	return w.timed(ctx, hists, fmt.Sprintf("update_%d", size), there, two, one)
}

// timed makes one change of some refs in a transaction, and keeps its latency under name.
func (w *scaleWork) timed(ctx context.Context, hists map[string]*hdrhistogram.Histogram, name string, numbers []int, old, new string) error {
	changes := w.changes(numbers, old, new)
	began := time.Now()
	err := w.ours.transact(ctx, changes)
	took := time.Since(began)
	noteRefs(w.ledger, numbers, new, err)
	w.rig.Op("update").Record(0, began, len(numbers), err)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if hists[name] == nil {
		hists[name] = newLatencies()
	}
	_ = hists[name].RecordValue(max(took.Microseconds(), 1)) // a call that takes an hour has failed before
	return nil
}

// loadAll loads many refs and times that. The window is the load.
func (s *scaleRun) loadAll(ctx context.Context) error {
	var took time.Duration
	err := s.rig.MeasureWork(ctx, func(ctx context.Context) error {
		began := time.Now()
		err := s.load(ctx, s.rig.Shape.Prefill, s.stock.commits[0], s.even)
		took = time.Since(began)
		s.rig.Op("update").Count(0, s.rig.Shape.Prefill)
		return err
	})
	s.rig.Metric("seconds", took.Seconds(), "s")
	s.rig.Metric("refs_per_s", float64(s.rig.Shape.Prefill)/max(took.Seconds(), 1e-9), "refs/s")
	return err
}

// list lists all refs as git does, by protocol version 2, again and again. It tells the time of a
// listing, the time to its first byte, and how much memory the server takes for it.
func (s *scaleRun) list(ctx context.Context) error {
	if err := s.load(ctx, s.rig.Shape.Prefill, s.stock.commits[0], s.even); err != nil {
		return err
	}
	admin, err := adminOf(s.rig)
	if err != nil {
		return err
	}
	before, err := admin.footprint(ctx)
	if err != nil {
		return err
	}
	looking, stop := context.WithCancel(ctx)
	peak := make(chan float64, 1)
	go func() { peak <- admin.peak(looking, memoryLook) }()
	// whole are the times of listings in seconds, first those to the first byte in milliseconds.
	var whole, first []float64
	err = s.rig.MeasureWork(ctx, func(ctx context.Context) error {
		for end := time.Now().Add(s.rig.Window); len(whole) == 0 || time.Now().Before(end); {
			began := time.Now()
			byte1, refs, err := s.lsRefs(ctx)
			if err != nil {
				return err
			}
			if want := s.rig.Shape.Prefill + len(s.stock.commits); refs != want {
				return fmt.Errorf("ls-refs lists %d refs, want %d", refs, want)
			}
			s.rig.Op("list").Record(0, began, refs, nil)
			whole, first = append(whole, time.Since(began).Seconds()), append(first, byte1.Seconds()*1e3)
		}
		return nil
	})
	stop()
	most := <-peak
	if err != nil {
		return err
	}
	same := func(v float64) float64 { return v }
	s.rig.Metric("seconds", middle(whole, same), "s")
	s.rig.Metric("first_byte_ms", middle(first, same), "ms")
	s.rig.Metric("memory_mib", max(0, most-before.resident)/(1<<20), "MiB")
	return nil
}

// lsRefs asks for the refs of the bench, and returns when the first byte came and how many there
// are. Each reference is one line of the protocol.
func (s *scaleRun) lsRefs(ctx context.Context) (first time.Duration, refs int, err error) {
	// ask is one request in lines of git's protocol, each with its length: the command, the
	// prefixes of refs that the run has, and the end.
	const ask = "0014command=ls-refs\n0001001bref-prefix refs/heads/\n001aref-prefix refs/keep/\n0000"
	began := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.stock.url+"/git-upload-pack", strings.NewReader(ask))
	if err != nil {
		return 0, 0, err
	}
	req.Header.Set("Content-Type", "application/x-git-upload-pack-request")
	req.Header.Set("Git-Protocol", "version=2")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	if resp.StatusCode != http.StatusOK {
		return 0, 0, fmt.Errorf("ls-refs: %s", resp.Status)
	}
	in := bufio.NewReaderSize(resp.Body, 1<<20)
	for {
		n, err := pktLength(in)
		if first == 0 {
			first = time.Since(began)
		}
		if err != nil {
			return first, refs, fmt.Errorf("ls-refs: %w", err)
		}
		if n == 0 {
			return first, refs, nil
		}
		if _, err := in.Discard(n); err != nil {
			return first, refs, fmt.Errorf("ls-refs: %w", err)
		}
		refs++
	}
}

// pktLength reads the four hexadecimal digits that begin a line of git's protocol, and returns the
// length of what follows; 0 is the end.
func pktLength(in io.Reader) (int, error) {
	var digits [4]byte
	if _, err := io.ReadFull(in, digits[:]); err != nil {
		return 0, err
	}
	var length [2]byte
	if _, err := hex.Decode(length[:], digits[:]); err != nil {
		return 0, err
	}
	return max(int(binary.BigEndian.Uint16(length[:]))-len(digits), 0), nil
}
