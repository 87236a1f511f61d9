package millrace_test

import (
	"errors"
	"strings"
	"testing"

	millrace "github.com/millrace/millrace/sdk/go"
)

// TestAPageOfTasksHasTheirHeadsAndTellsHowFarItCame: what a list asks for comes over both transports.
func TestAPageOfTasksHasTheirHeadsAndTellsHowFarItCame(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		c, ctx := dial(t, opts...), bounded(t)
		job := millrace.Job[string, string]("heads").Queue("heads")
		long := strings.Repeat("x", 400)
		for _, text := range []string{"a", long, "c"} {
			if _, err := job.Add(ctx, c, text); err != nil {
				t.Fatal(err)
			}
		}
		page, err := c.ListPage(ctx, millrace.ListQuery{Kind: "heads", Limit: 2, Head: 256})
		if err != nil || len(page.Tasks) != 2 || page.Next == "" || page.Inspected < 2 {
			t.Fatalf("%+v, %v", page, err)
		}
		for _, task := range page.Tasks {
			whole, err := c.Task(ctx, task.ID)
			if err != nil || string(task.Head) != string(whole.Payload[:min(len(whole.Payload), 256)]) || task.PayloadSize != len(whole.Payload) || task.Payload != nil {
				t.Errorf("task %s: head %q of %d, %v", task.ID, task.Head, task.PayloadSize, err)
			}
		}
		if !page.Reached.Equal(page.Tasks[1].CreatedAt) {
			t.Errorf("reached %v, and the last task is of %v", page.Reached, page.Tasks[1].CreatedAt)
		}
		if _, err := c.ListPage(ctx, millrace.ListQuery{Head: 257}); !errors.Is(err, millrace.ErrInvalid) {
			t.Errorf("a head beyond its limit: %v", err)
		}
	})
}

// TestRefsAreListedInTheOrderOfTheirChanges: page by page, over both transports.
func TestRefsAreListedInTheOrderOfTheirChanges(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		c, ctx := dial(t, opts...), bounded(t)
		repo := c.Repo("moved")
		if _, err := repo.Create(ctx, millrace.RepoSettings{}); err != nil {
			t.Fatal(err)
		}
		for _, names := range [][]string{{"refs/b", "refs/a"}, {"refs/d"}, {"refs/c"}} {
			var changes []millrace.RefChange
			for _, name := range names {
				changes = append(changes, millrace.PointRef(name, "refs/heads/main"))
			}
			if _, err := repo.Update(ctx, changes...); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		q := millrace.RefQuery{Prefix: "refs/", Moved: true, Limit: 3}
		for range 2 {
			set, err := repo.List(ctx, q)
			if err != nil || set.Partial || set.Rev == 0 || len(set.Refs) == 0 {
				t.Fatal(set, err)
			}
			for _, ref := range set.Refs {
				got = append(got, ref.Name)
				q.After, q.AfterRev = ref.Name, ref.Rev
			}
		}
		if want := "refs/c refs/d refs/a refs/b"; strings.Join(got, " ") != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
