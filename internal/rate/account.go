package rate

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/core"
)

// How a rate is shared among the nodes of a cluster. Twice a second each node tells the leader of shard 0 what it took of each
// rate that it used, and whether it had to refuse anything, and is answered with its share from there on. A node that was told
// nothing lately uses an equal share, the rate divided by the number of nodes: so it need not ask before its first put, and goes
// on without a leader.
//
// What is taken beyond a rate is therefore at most what the other nodes' equal shares bring until everybody has heard of it,
// which is at most a second and a bit, and what their buckets held: together less than two seconds' worth, or one put for each
// node where the rate is less than that. It is made good: the shares are so much less until it is.
//
// Nothing of this is replicated. A new leader listens until the shares that the one before it gave out count no more, and answers
// then: if it answered the first that tells, it would give it what the others have.

const (
	// shareFor is for how long a share counts: two answers may be lost before it does not.
	shareFor = 1200 * time.Millisecond
	// paceFor is for how long what was told of all nodes is shown.
	paceFor = 3 * time.Second
	// activeFor is for how long a node that used a rate keeps a share of it.
	activeFor = 2 * time.Second
	// bucketFor is for how long a bucket that is not used is kept, and accountFor for how long an account, or a node's part in
	// it: longer, so that a bucket that the account does not know is a new one.
	bucketFor  = 20 * time.Second
	accountFor = 30 * time.Second
	// maxShared bounds the rates of one message; the nodes go by equal shares of the others.
	maxShared = 1000
	// wantFor is for how long a refusal says that a node wants more: longer than a stream waits before it asks again.
	wantFor = lookAgain + 100*time.Millisecond
	// wantMore is what a node gets that was refused nothing, of what it took: so that it may take a little more.
	wantMore = 1.1
)

// account is what the leader of shard 0 knows of a rate.
type account struct {
	// at is the boot time of the last look.
	at time.Duration
	// heard is the boot time at which a node told of the rate last.
	heard time.Duration
	// rate is how much comes in a second, by the table at the last look.
	rate load
	// left is what would be in one bucket for all nodes, if there were one. Negative: so much was taken beyond the
	// rate.
	left load
	// parts are the nodes' parts, by their replica.
	parts map[uint64]*part
}

// part is a node's part in an account.
type part struct {
	// heard is the boot time of the node's last report.
	heard time.Duration
	// active is the boot time at which it took something last, or wanted more.
	active time.Duration
	// taken is what its bucket had given when it told last, since the bucket was made.
	taken [len(load{})]uint64
	// pace is what it takes in a second: the mean of its last look and of what was known before.
	pace load
	// debt is what its bucket owes: that much it makes good itself.
	debt load
	// want says that it was refused something, by part of the load.
	want [len(load{})]bool
}

// Used is what a node tells of a rate.
type Used struct {
	// key names the rate.
	key Key
	// age is that of its bucket. A bucket younger than the last report is a new one.
	age time.Duration
	// taken is what the bucket has given since it was made, debt what it owes, in puts and bytes.
	taken [len(load{})]uint64
	debt  [len(load{})]uint64
	// want says that the node refused something a short time ago.
	want [len(load{})]bool
}

// Shared is what a node is told of a rate.
type Shared struct {
	// key names the rate.
	key Key
	// rate is the node's share in a second, and pace what all nodes take.
	rate load
	pace core.KeyPace
}

// shareOf is how much of a rate is this node's. r.mu is held.
func (r *Rates) shareOf(b *bucket, now time.Duration, rate load) (of load) {
	for i := range rate {
		switch {
		case r.nodes <= 1:
			of[i] = rate[i]
		case b.share.known && now-b.share.at <= shareFor:
			of[i] = min(b.share.rate[i], rate[i])
		default:
			of[i] = rate[i] / float64(r.nodes)
		}
	}
	return of
}

// Report tells what this node used lately.
func (r *Rates) Report(now time.Duration) (out []Used) {
	table := *r.table.Load()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range sortedRates(r.buckets) {
		b := r.buckets[k]
		rate, bounded := table[k]
		if !bounded || now-b.active > activeFor || len(out) == maxShared {
			continue
		}
		b.fill(now, r.shareOf(b, now, loadOf(rate)))
		u := Used{key: k, age: now - b.made, taken: b.taken}
		for i := range b.have {
			u.debt[i] = uint64(math.Ceil(max(-b.have[i], 0)))
			u.want[i] = b.refused[i] > 0 && now-b.refused[i] <= wantFor
		}
		out = append(out, u)
	}
	return out
}

// Learn takes over what this node was told when it asked, at a boot time.
func (r *Rates) Learn(shared []Shared, asked, now time.Duration) {
	table := *r.table.Load()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range shared {
		rate, bounded := table[s.key]
		if !bounded {
			continue
		}
		b := r.bucketOf(s.key, now, loadOf(rate))
		if b.share.known && asked < b.share.at {
			continue // answers may overtake one another
		}
		b.fill(now, r.shareOf(b, now, loadOf(rate)))
		b.share = share{known: true, at: asked, rate: s.rate, pace: s.pace}
	}
}

// Settle takes a node's report into the accounts of a term, and says what its shares are: of what it used, and of what others use.
func (r *Rates) Settle(term, from uint64, used []Used, now time.Duration) (out []Shared) {
	table := *r.table.Load()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.term != term {
		r.term, r.since, r.accounts = term, now, nil
	}
	listens := r.nodes > 1 && now-r.since < shareFor
	told := make(map[Key]bool, len(used))
	for i := range used {
		u := &used[i]
		if rate, bounded := table[u.key]; bounded && !told[u.key] {
			told[u.key] = true
			a := r.accountOf(u.key, now, loadOf(rate))
			a.take(from, u, now)
			out = append(out, a.shared(u.key, from, r.nodes, now))
		}
	}
	if listens {
		return nil
	}
	for _, k := range sortedRates(r.accounts) {
		if a := r.accounts[k]; !told[k] && len(out) < maxShared && now-a.heard <= activeFor {
			a.fill(now, loadOf(table[k]))
			out = append(out, a.shared(k, from, r.nodes, now))
		}
	}
	return out
}

// accountOf returns the account of a rate, filled up to now; it is full at first. r.mu is held.
func (r *Rates) accountOf(k Key, now time.Duration, rate load) *account {
	a := r.accounts[k]
	if a == nil {
		if r.accounts == nil {
			r.accounts = make(map[Key]*account)
		}
		a = &account{at: now, left: rate, parts: make(map[uint64]*part)}
		r.accounts[k] = a
	}
	a.fill(now, rate)
	return a
}

// fill adds what the rate has brought since the last look.
func (a *account) fill(now time.Duration, rate load) {
	gone := max(now-a.at, 0).Seconds()
	a.at, a.rate = now, rate
	for i := range rate {
		a.left[i] = min(a.left[i]+rate[i]*gone, max(rate[i], 1))
	}
}

// take takes in what a node used.
func (a *account) take(from uint64, u *Used, now time.Duration) {
	p := a.parts[from]
	since := u.age
	var before [len(load{})]uint64
	switch {
	case p == nil && u.age > activeFor:
		before, since = u.taken, 0 // of an old bucket nothing is known but that
		fallthrough
	case p == nil:
		p = &part{active: now - 2*activeFor}
		a.parts[from] = p
	case u.age > now-p.heard: // the same bucket as in the last report
		before, since = p.taken, now-p.heard
	}
	a.heard, p.heard, p.want = now, now, u.want
	for i := range u.taken {
		took := float64(u.taken[i] - min(before[i], u.taken[i]))
		if took > 0 || u.want[i] {
			p.active = now
		}
		if since > 0 {
			p.pace[i] = (p.pace[i] + took/max(since, time.Millisecond).Seconds()) / 2
		}
		p.debt[i] = float64(u.debt[i])
		if a.rate[i] > 0 {
			a.left[i] -= took
		}
	}
	p.taken = u.taken
	for id, other := range a.parts {
		if now-other.heard > accountFor {
			delete(a.parts, id)
		}
	}
}

// shared says what a node's share is.
func (a *account) shared(k Key, from uint64, nodes int, now time.Duration) Shared {
	s := Shared{key: k}
	for i := range a.rate {
		beyond, pace := max(-a.left[i], 0), 0.0
		owed := 0.0
		var users []*part
		own := -1
		for id, p := range a.parts {
			owed += p.debt[i]
			if now-p.active > activeFor || now-p.heard > activeFor {
				continue
			}
			if id == from {
				own = len(users)
			}
			users = append(users, p)
			pace += p.pace[i]
		}
		if i == 0 {
			s.pace.Puts, s.pace.OverPuts = uint64(math.Round(pace)), uint64(beyond)
		} else {
			s.pace.Bytes, s.pace.OverBytes = uint64(math.Round(pace)), uint64(beyond)
		}
		if a.rate[i] <= 0 {
			continue
		}
		good := a.rate[i] - min(max(beyond-owed, 0), a.rate[i]) // but for what must be made good, and no bucket owes
		if own < 0 {
			s.rate[i] = good / float64(max(nodes, 1))
			continue
		}
		s.rate[i] = divide(good, users, i)[own]
	}
	return s
}

// divide deals a rate out to who uses it. Those who were refused nothing get a little more than they took, as long as that is
// no more than an equal part of what is left; the others share the rest.
func divide(rate float64, users []*part, i int) []float64 {
	out := make([]float64, len(users))
	order := make([]int, len(users))
	for n := range order {
		order[n] = n
	}
	needs := func(n int) float64 {
		if users[n].want[i] {
			return math.Inf(1)
		}
		return users[n].pace[i] * wantMore
	}
	slices.SortFunc(order, func(x, y int) int {
		switch a, b := needs(x), needs(y); {
		case a < b:
			return -1
		case a > b:
			return 1
		}
		return 0
	})
	left := rate
	for at, n := range order {
		out[n] = min(needs(n), left/float64(len(order)-at))
		left -= out[n]
	}
	for n := range out {
		out[n] += left / float64(len(out)) // no node wants it now
	}
	return out
}

// What a node tells is its boot time (8 bytes), which the caller writes, and for each rate: tenant (4), namespace (4), the name's length (2) and the name;
// then the age of the bucket (8), and twice, of puts and of bytes: taken (8), owed (8), and whether more was wanted (1).

// appendRateKey appends the key of a rate in the form of both messages.
func appendRateKey(b []byte, k Key) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(k.Tenant))
	b = binary.BigEndian.AppendUint32(b, uint32(k.Namespace))
	b = binary.BigEndian.AppendUint16(b, uint16(len(k.Keyspace)))
	return append(b, k.Keyspace...)
}

// decodeRateKey reads a key and returns what follows it; false: the bytes are too few.
func decodeRateKey(b []byte) (k Key, rest []byte, ok bool) {
	if len(b) < 10 {
		return k, nil, false
	}
	k.Tenant, k.Namespace = core.TenantID(binary.BigEndian.Uint32(b)), core.NamespaceID(binary.BigEndian.Uint32(b[4:]))
	n := int(binary.BigEndian.Uint16(b[8:]))
	if b = b[10:]; len(b) < n {
		return k, nil, false
	}
	k.Keyspace = string(b[:n])
	return k, b[n:], true
}

// AppendUsed appends what a node tells to b.
func AppendUsed(b []byte, used []Used) []byte {
	for i := range used {
		u := &used[i]
		b = binary.BigEndian.AppendUint64(appendRateKey(b, u.key), uint64(u.age))
		for j := range u.taken {
			b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, u.taken[j]), u.debt[j])
			want := byte(0)
			if u.want[j] {
				want = 1
			}
			b = append(b, want)
		}
	}
	return b
}

// DecodeUsed reads what a node tells, the boot time included; false if it is not of that form.
func DecodeUsed(b []byte) (out []Used, ok bool) {
	const each = 17 // bytes of puts, and of bytes
	if len(b) < 8 {
		return nil, false
	}
	for b = b[8:]; len(b) > 0; {
		var u Used
		if u.key, b, ok = decodeRateKey(b); !ok || len(b) < 8+len(u.taken)*each || len(out) == maxShared {
			return nil, false
		}
		u.age = max(time.Duration(binary.BigEndian.Uint64(b)), 0)
		b = b[8:]
		for j := range u.taken {
			u.taken[j], u.debt[j], u.want[j] = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), b[16] == 1
			b = b[each:]
		}
		out = append(out, u)
	}
	return out, true
}

// What a node is told is the boot time that it asked at (8 bytes), which the caller writes, and for each rate: the key as above; then twice, of puts and of
// bytes: its share in a second (8, the bits of a floating-point number), what all nodes take in a second (8), and what was taken
// beyond the rate (8).

// AppendShared appends what a node is told to b.
func AppendShared(b []byte, shared []Shared) []byte {
	for i := range shared {
		s := &shared[i]
		b = appendRateKey(b, s.key)
		for j, of := range [len(load{})][2]uint64{{s.pace.Puts, s.pace.OverPuts}, {s.pace.Bytes, s.pace.OverBytes}} {
			b = binary.BigEndian.AppendUint64(b, math.Float64bits(s.rate[j]))
			b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, of[0]), of[1])
		}
	}
	return b
}

// DecodeShared reads what a node is told, the boot time included; false if it is not of that form.
func DecodeShared(b []byte) (out []Shared, ok bool) {
	// each is the bytes of puts, and of bytes.
	const each = 24
	if len(b) < 8 {
		return nil, false
	}
	for b = b[8:]; len(b) > 0; {
		var s Shared
		if s.key, b, ok = decodeRateKey(b); !ok || len(b) < len(s.rate)*each {
			return nil, false
		}
		for j, of := range [len(load{})][2]*uint64{{&s.pace.Puts, &s.pace.OverPuts}, {&s.pace.Bytes, &s.pace.OverBytes}} {
			s.rate[j] = math.Float64frombits(binary.BigEndian.Uint64(b))
			if !(s.rate[j] >= 0) { // nor a number at all
				return nil, false
			}
			*of[0], *of[1] = binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])
			b = b[each:]
		}
		out = append(out, s)
	}
	return out, true
}
