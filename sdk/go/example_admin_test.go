package millrace_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// What follows is the code of docs/start/cron.md, docs/start/limits.md and docs/start/batches.md.

func weekly(ctx context.Context, c *millrace.Client) error {
	report := millrace.Job[string, string]("report").Queue("reports")
	set, err := report.Cron(ctx, c, "weekly", "0 6 * * 1", "last week", millrace.CronZone("Europe/Berlin"),
		millrace.CronOverlaps(millrace.CronQueueOne), millrace.CronTask(millrace.Key("acme"), millrace.Cost(5)))
	if err != nil {
		return err
	}
	run, err := c.TriggerCron(ctx, "weekly") // now; its next slot stays
	if err != nil {
		return err
	}
	fmt.Println(set.Words, run.Outcome)
	crons, _, err := c.Crons(ctx, 0, "") // a page of them
	if err != nil {
		return err
	}
	for _, one := range crons {
		fmt.Println(one.Name, one.Paused, one.LastRun.Number)
	}
	return c.DeleteCron(ctx, "weekly")
}

func limits(ctx context.Context, c *millrace.Client) error {
	q := c.Queue("renders")
	_, err := q.Set(ctx, millrace.QueueConfig{
		Concurrency: 20, PerKey: millrace.KeyLimits{Concurrency: 1}, Rate: millrace.Rate{Limit: 600, Per: time.Minute, Burst: 50},
	})
	if err != nil {
		return err
	}
	if _, err := q.Update(ctx, func(cfg *millrace.QueueConfig) { cfg.Concurrency = 30 }); err != nil { // keeps the others
		return err
	}
	if _, err := q.SetKey(ctx, "app", millrace.KeySettings{Weight: 3, Concurrency: 2}); err != nil {
		return err
	}
	if _, err := q.PauseKey(ctx, "web", millrace.PauseReason("their server is down")); err != nil {
		return err
	}
	keys, _, err := q.Keys(ctx, millrace.KeysQuery{Sort: "backlog"})
	for _, k := range keys {
		fmt.Println(k.Key, k.Ready, k.Settings.Weight, k.Paused != nil)
	}
	return err
}

func call(ctx context.Context, c *millrace.Client, t *millrace.Task, url string) error {
	wait, err := ask(ctx, url) // 0, or what Retry-After says
	if err != nil || wait == 0 {
		return err
	}
	if err := c.Commit(ctx, func(tx *millrace.Tx) {
		tx.Fence(t)
		tx.PauseQueue(t.Queue, millrace.PauseUntil(time.Now().Add(wait)), millrace.PauseReason(url))
	}); err != nil {
		return err
	}
	return millrace.Snooze(wait)
}

func shared(ctx context.Context, c *millrace.Client) error {
	two := millrace.LimiterConfig{Concurrency: 2, Rate: millrace.Rate{Limit: 600, Per: time.Minute}}
	if _, err := c.SetLimiter(ctx, "openai", two); err != nil {
		return err
	}
	if _, err := c.Queue("transcribe").Update(ctx, func(cfg *millrace.QueueConfig) {
		cfg.Limiters = []string{"openai"} // all tasks of the queue
	}); err != nil {
		return err
	}
	summary := millrace.Job[string, string]("summary").Limiters("openai") // each of its tasks
	chat := millrace.Job[string, string]("chat")
	one, err := summary.Add(ctx, c, "report")
	if err != nil {
		return err
	}
	other, err := chat.Add(ctx, c, "hello", millrace.Limiters("openai"), millrace.Cost(2)) // this one
	if err != nil {
		return err
	}
	shown, err := c.Limiter(ctx, "openai")
	if err != nil {
		return err
	}
	fmt.Println(shown.Used, shown.Tasks, shown.Queues)
	w := c.Worker(millrace.Weights(map[string]int{"chat": 3}))
	summary.Handle(w, func(_ context.Context, _ *millrace.Task, text string) (string, error) { return text + ": done", nil })
	chat.Handle(w, func(_ context.Context, _ *millrace.Task, text string) (string, error) { return text + "!", nil })
	working, stop := context.WithCancel(ctx)
	defer stop()
	go w.Run(working)
	first, err := one.Wait(ctx)
	if err != nil {
		return err
	}
	second, err := other.Wait(ctx)
	fmt.Println(first, second)
	return err
}

func load(ctx context.Context, c *millrace.Client, files []string) error {
	imports := millrace.Job[string, int]("import")
	report := millrace.Job[string, string]("report").Queue("reports")
	b, err := c.OpenBatch(ctx, millrace.OnDone(report, "import"), millrace.BatchLabels(map[string]string{"of": "import"}))
	if err != nil {
		return err
	}
	if _, err := imports.AddMany(ctx, c, files, millrace.InBatch(b.ID)); err != nil {
		return err
	}
	if _, err := c.SealBatch(ctx, b.ID); err != nil { // no more tasks come
		return err
	}
	w := c.Worker()
	imports.Handle(w, func(_ context.Context, _ *millrace.Task, file string) (int, error) { return len(file), nil })
	report.Handle(w, func(_ context.Context, t *millrace.Task, of string) (string, error) {
		return of + " of " + t.Headers["millrace-batch"], nil
	})
	working, stop := context.WithCancel(ctx)
	defer stop()
	go w.Run(working)
	done, err := c.WaitBatch(ctx, b.ID)
	if err != nil {
		return err
	}
	told, err := report.Of(c, done.DoneTask).Wait(ctx)
	fmt.Println(done.State, done.Counts.Completed, told == "import of "+b.ID)
	return err
}

// asked is how often ask was called.
var asked int

// ask is told to come back later when it asks for the first time.
func ask(context.Context, string) (time.Duration, error) {
	if asked++; asked == 1 {
		return 200 * time.Millisecond, nil
	}
	return 0, nil
}

// A cron makes tasks of a job by a schedule.
func ExampleJobOf_Cron() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx, millrace.Namespace("crons")))
	defer func() { _ = c.Close() }()
	must(0, weekly(ctx, c))
	// Output:
	// at 06:00 on Monday started
	// weekly false 1
}

// Limits of a queue hold for all of it, those of a key for the tasks that name it.
func ExampleQueue_Update() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	must(millrace.Job[int, int]("renders").AddMany(ctx, c, []int{1, 2}, millrace.Key("app")))
	must(millrace.Job[int, int]("renders").Add(ctx, c, 3, millrace.Key("web")))
	must(0, limits(ctx, c))
	// Output:
	// app 2 3 false
	// web 1 0 true
}

// A handler pauses its queue for as long as the other side says, and its task comes back then.
func ExampleTx_PauseQueue() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx))
	defer func() { _ = c.Close() }()
	job := millrace.Job[string, int]("call")
	w := c.Worker()
	job.Handle(w, func(ctx context.Context, t *millrace.Task, url string) (int, error) {
		return t.Attempt, call(ctx, c, t, url)
	})
	defer start(w)()
	h := must(job.Add(ctx, c, "https://example.com"))
	fmt.Println(must(h.Wait(ctx)), must(h.Get(ctx)).Snoozes)
	// Output: 2 1
}

// A limiter bounds the tasks of several jobs together.
func ExampleClient_SetLimiter() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx, millrace.Namespace("limiters")))
	defer func() { _ = c.Close() }()
	must(0, shared(ctx, c))
	// Output:
	// 0 2 [transcribe]
	// report: done hello!
}

// A batch makes a task when all of its tasks have ended.
func ExampleClient_OpenBatch() {
	ctx := context.Background()
	c := must(millrace.Dial(ctx, millrace.Namespace("batches")))
	defer func() { _ = c.Close() }()
	must(0, load(ctx, c, []string{"a.csv", "b.csv"}))
	// Output: finished 2 true
}

// TestTheCodeOfThePagesIsThatOfExamples holds the pages to what is run here.
func TestTheCodeOfThePagesIsThatOfExamples(t *testing.T) {
	code, err := os.ReadFile("example_admin_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"cron", "limits", "batches"} {
		text, err := os.ReadFile("../../docs/start/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		blocks := strings.Split(string(text), "\n```go\n")[1:]
		if len(blocks) == 0 {
			t.Errorf("%s.md has no code", page)
		}
		for _, block := range blocks {
			block, _, _ = strings.Cut(block, "\n```\n")
			if !strings.Contains(string(code), block) {
				t.Errorf("%s.md has code that is not in the examples:\n%s", page, block)
			}
		}
	}
}
