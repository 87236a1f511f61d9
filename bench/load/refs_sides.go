package load

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/millrace/millrace/bench"
	millrace "github.com/millrace/millrace/sdk/go"
)

// refsRepo is the repository of a run. refsPrefix begins the names of the refs that a run changes,
// and keptPrefix those that nothing changes.
const (
	refsRepo   = "bench"
	refsPrefix = "refs/heads/b"
	keptPrefix = "refs/keep/"
)

// refsChange is one change of a ref from one commit to another. An empty old creates it, an empty
// new deletes it.
type refsChange struct{ name, old, new string }

// refsSystem is a system that changes refs: ours or git. One goroutine uses it.
type refsSystem interface {
	// transact applies changes in one transaction.
	transact(ctx context.Context, changes []refsChange) error
	// restored is told that all refs are there again, and packs them if the cell has packed ones.
	restored(ctx context.Context, packed bool) error
	// close ends the system's connection or process.
	close() error
}

// refsStock is where the commits of a run come from: a repository of git's own, and one of the
// server with the same objects.
type refsStock struct {
	git gitDir
	// commits are two commits that refs are moved between.
	commits [2]string
	// url is that of the server's repository, with a token in it.
	url string
}

// newRefsStock makes two commits, and a repository of the server, which gets them by a push. So the
// server has each object that refs are moved to.
func newRefsStock(ctx context.Context, rig *bench.Rig) (s refsStock, err error) {
	if rig.Servers[0].HTTP == "" || rig.Dir == "" {
		return s, errors.New("objects are pushed by git: the servers must be processes of the bench, with a REST door")
	}
	home, err := os.MkdirTemp(rig.Dir, "refs")
	if err != nil {
		return s, err
	}
	if s.git, err = initGit(ctx, home, "objects.git"); err != nil {
		return s, err
	}
	tree, err := s.git.run(ctx, "", "mktree")
	if err != nil {
		return s, err
	}
	// Both commits have the same empty tree; their messages make them different.
	for i, message := range []string{"one", "two"} {
		if s.commits[i], err = s.git.run(ctx, "", "commit-tree", "-m", message, tree); err != nil {
			return s, err
		}
		if _, err := s.git.run(ctx, "", "update-ref", keptName(i), s.commits[i]); err != nil {
			return s, err
		}
	}
	if s.url, err = newServerRepo(ctx, rig); err != nil {
		return s, err
	}
	_, err = s.git.run(ctx, "", "push", "-q", s.url, keptPrefix+"*:"+keptPrefix+"*")
	return s, err
}

// keptName names the ref that keeps commit i.
func keptName(i int) string { return fmt.Sprintf("%s%d", keptPrefix, i) }

// newServerRepo makes a repository on the first server, and returns its URL for git.
func newServerRepo(ctx context.Context, rig *bench.Rig) (string, error) {
	c, err := rig.Dial(ctx, 0)
	if err != nil {
		return "", err
	}
	defer c.Close() //nolint:errcheck // what it was asked for is done, or an error tells
	if _, err := c.Repo(refsRepo).Create(ctx, millrace.RepoSettings{}); err != nil {
		return "", err
	}
	return repoURL(rig, 0)
}

// repoURL is where the n-th server serves that repository to git, with the token as its password.
func repoURL(rig *bench.Rig, n int) (string, error) {
	u, err := url.Parse(rig.Servers[n].HTTP)
	if err != nil {
		return "", err
	}
	u.User, u.Path = url.UserPassword("bench", rig.Token), "/git/"+rig.Namespace+"/"+refsRepo+".git"
	return u.String(), nil
}

// ledger makes the ledger of one system that has the stock's refs. kept says that it has those
// below keptPrefix too, which the push made.
func (s *refsStock) ledger(prefix string, kept bool) *bench.RefLedger {
	l := bench.NewRefLedger(refsRepo, prefix)
	for i, id := range s.commits {
		if kept {
			l.Keep(keptName(i), id)
		}
	}
	return l
}

// ourRefs changes refs through a session of the Go client, one transaction at a time.
type ourRefs struct {
	// client is the connection, and session the stream of transactions on it.
	client  *millrace.Client
	session *millrace.RefSession
}

// newOurRefs connects a client of its own.
func newOurRefs(ctx context.Context, rig *bench.Rig) (*ourRefs, error) {
	c, err := rig.Dial(ctx, 0)
	if err != nil {
		return nil, err
	}
	s, err := c.Repo(refsRepo).Session(ctx)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &ourRefs{c, s}, nil
}

// transact commits all changes or none.
func (o *ourRefs) transact(ctx context.Context, changes []refsChange) error {
	tx := o.session.Begin()
	for _, c := range changes {
		switch {
		case c.old == "":
			tx.Create(c.name, c.new)
		case c.new == "":
			tx.Delete(c.name, c.old)
		default:
			tx.Update(c.name, c.old, c.new)
		}
	}
	_, err := tx.Commit(ctx)
	return err
}

// restored has nothing to do.
func (o *ourRefs) restored(context.Context, bool) error { return nil } // loose and packed are the same here

// close ends the session before its client.
func (o *ourRefs) close() error { return errors.Join(o.session.Close(), o.client.Close()) }

// roundTrips is the number of refused transactions that a round trip is the mean of.
const roundTrips = 200

// roundTrip is the mean time of a transaction that the server refuses before its log sees it: what
// the stream and the check cost without a write and a sync.
func (o *ourRefs) roundTrip(ctx context.Context, object string) (time.Duration, error) {
	// Two points in a row are not allowed in a name, which the server checks before anything else.
	bad := []refsChange{{name: refsPrefix + "..", new: object}}
	began := time.Now()
	for range roundTrips {
		err := o.transact(ctx, bad)
		if e, ok := errors.AsType[*millrace.Error](err); !ok || e.Outcome != millrace.Refused {
			return 0, fmt.Errorf("a ref named %q: %v, want a refusal", bad[0].name, err) //nolint:errorlint // nil is told too
		}
	}
	return time.Since(began) / roundTrips, nil
}

// noteRefs tells a ledger how a transaction ended, after which all its refs are at object, or none
// is moved. Refs are named by the ledger's numbers. A refusal changes nothing.
func noteRefs(l *bench.RefLedger, numbers []int, object string, err error) {
	for _, n := range numbers {
		switch {
		case err == nil:
			l.Acked(n, object)
		case !refused(err):
			l.Unknown(n, object)
		}
	}
}

// proveRefs adds the refs of a second system to the audit of the run.
func proveRefs(rig *bench.Rig, l *bench.RefLedger, reader bench.RefReader) {
	rig.Proofs = append(rig.Proofs, func(ctx context.Context) ([]string, error) {
		a, err := bench.AuditRefs(ctx, l, reader)
		if err != nil {
			return nil, err
		}
		return a.Violations, nil
	})
}
