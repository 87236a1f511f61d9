package row

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
	"github.com/millrace/millrace/test/chaos/proc"
)

// smallDisk is the size of a disk that is filled, in bytes.
const smallDisk = 64 << 20

// FillDisk fills the disk of a server n times under a mixed load. New work is refused by that limit's name, reads, deletes and
// completions go on, also after a kill in the middle of it, the server does not end, and goes on when there is room again.
func FillDisk(ctx context.Context, e Env, n int) (*Outcome, error) {
	disk, err := proc.NewSmallDisk(e.Dir, smallDisk)
	if err != nil {
		return nil, err
	}
	opts := proc.Options{Binary: e.Binary, Dir: filepath.Join(e.Dir, "server"), Data: filepath.Join(disk.At, "data"), Flags: e.archiveFlags()}
	if e.Mutant != "" {
		opts.Env = append(opts.Env, "MILLRACE_MUTANT="+e.Mutant)
	}
	s, err := proc.New(ctx, opts, "default", "neighbour")
	if err != nil {
		return nil, errors.Join(err, disk.Close())
	}
	f := &filled{e: e, s: s, disk: disk, r: rand.New(rand.NewPCG(e.Seed, 8))}
	o, _, err := faultsUnderLoad(ctx, e, s, e.archive(), kinds, func(ctx context.Context, o *Outcome) (err error) {
		f.o = o
		if f.c, err = dial(ctx, e, one{s}, 0, s.Tokens[0], ""); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.c.close()) }()
		for i := range n {
			pause(ctx, time.Duration(300+f.r.IntN(1000))*time.Millisecond)
			if err := f.fill(ctx, i); err != nil {
				return fmt.Errorf("fill %d: %w", i+1, err)
			}
			o.Done++
		}
		return ctx.Err()
	})
	s.Kill()
	return o, errors.Join(err, disk.Close())
}

// filled is a server whose disk is filled.
type filled struct {
	e    Env
	s    *proc.Server
	disk *proc.SmallDisk
	// c makes the calls that are looked at one by one.
	c *client
	o *Outcome
	r *rand.Rand
}

const (
	// fullQueue names the queue, and the keyspace, of those calls.
	fullQueue = "full"
	// fullHeld tasks are claimed before, and completed while the disk is full.
	fullHeld = 10
	// fullCall is how long a create is waited for that may be refused.
	fullCall = time.Second
)

// fill fills the disk once, looks at what goes on then, and makes room:
//
//   - A key is put and tasks are claimed while there is room.
//   - The disk is filled until a create is refused for it.
//   - One time in two the server is killed, and must start on the full disk.
//   - Reads, completions and deletes go on.
//   - There is room again, and a create succeeds.
func (f *filled) fill(ctx context.Context, i int) error {
	kv, key := f.c.KV(fullQueue), fmt.Sprint(i)
	if _, err := kv.Put(ctx, key, "v"); err != nil {
		return err
	}
	job := millrace.Job[string, string](fullQueue)
	for range fullHeld {
		if _, err := job.Add(ctx, f.c.Client, "x"); err != nil {
			return err
		}
	}
	held, err := f.c.Claim(ctx, millrace.ClaimQuery{Queues: []string{fullQueue}, Max: fullHeld, Lease: time.Minute})
	if err != nil || len(held) != fullHeld {
		return fmt.Errorf("claimed %d tasks of %d: %w", len(held), fullHeld, err)
	}
	begin := time.Now()
	if err := f.disk.Fill(); err != nil {
		return err
	}
	if err := f.until(ctx, "refused", begin, isDiskFull); err != nil {
		return err
	}
	f.o.Faults["full"]++
	if f.r.IntN(2) == 0 {
		if !f.s.Kill() {
			return fmt.Errorf("the server ended by itself, see %s", f.s.LogFile())
		}
		if _, err := f.s.Start(ctx); err != nil {
			return fmt.Errorf("restart on a full disk: %w, see %s", err, f.s.LogFile())
		}
		f.o.Faults["kill_while_full"]++
	}
	if err := f.goesOn(ctx, kv, key, held); err != nil {
		return fmt.Errorf("while the disk is full: %w", err)
	}
	pause(ctx, time.Duration(f.r.IntN(2000))*time.Millisecond)
	if f.s.Ended() {
		return fmt.Errorf("the server ended by itself, see %s", f.s.LogFile())
	}
	begin = time.Now()
	if err := f.disk.Free(); err != nil {
		return err
	}
	return f.until(ctx, "resumes", begin, func(err error) bool { return err == nil })
}

// until adds tasks until one ends as is wanted, and notes among the figures how long that took,
// under the name what.
func (f *filled) until(ctx context.Context, what string, since time.Time, wanted func(error) bool) error {
	job := millrace.Job[string, string](fullQueue)
	var last error
	for time.Since(since) < hangs && ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, fullCall)
		_, last = job.Add(call, f.c.Client, "x")
		cancel()
		if wanted(last) {
			f.o.Figures[what+"_s"] = max(f.o.Figures[what+"_s"], time.Since(since).Seconds())
			return nil
		}
		pause(ctx, 10*time.Millisecond)
	}
	return fmt.Errorf("nothing %s within %s; the last create ended with %w", what, hangs, last)
}

// isDiskFull reports whether a call was refused because the disk is full.
func isDiskFull(err error) bool {
	var e *millrace.Error
	return errors.As(err, &e) && e.Code == millrace.CodeResourceExhausted && e.Limit == "disk" && e.Outcome == millrace.Refused
}

// goesOn does what a full disk must not hinder: it reads a key, which holds "v", completes the
// tasks that are held, and deletes the key.
func (f *filled) goesOn(ctx context.Context, kv millrace.KV, key string, held []millrace.Claimed) error {
	ctx, cancel := context.WithTimeout(ctx, hangs)
	defer cancel()
	if v, err := kv.Get(ctx, key); err != nil || v.String() != "v" {
		return fmt.Errorf("a key reads as %q: %w", v.String(), err)
	}
	for _, t := range held {
		if _, err := f.c.Complete(ctx, t.ID, t.Token, nil); err != nil {
			return fmt.Errorf("complete: %w", err)
		}
	}
	if _, err := kv.Delete(ctx, key); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	if _, err := kv.Get(ctx, key); !errors.Is(err, millrace.ErrNotFound) {
		return fmt.Errorf("a deleted key is read: %w", err)
	}
	return nil
}
