package millrace_test

import (
	"context"
	"reflect"
	"testing"

	millrace "github.com/millrace/millrace/sdk/go"
)

// TestValuesWithoutATypeComeBack: what a job of the type any is given, its handler gets, and so does who waits for its result.
func TestValuesWithoutATypeComeBack(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, opts ...millrace.Option) {
		c, ctx := dial(t, opts...), bounded(t)
		one, many := millrace.Job[any, any]("any.one"), millrace.Job[any, any]("any.many")
		w := c.Worker()
		one.Handle(w, func(_ context.Context, _ *millrace.Task, a any) (any, error) { return a, nil })
		many.HandleBatch(w, 8, func(_ context.Context, _ []*millrace.Task, args []any) ([]any, []error) { return args, nil })
		run(t, w)
		for _, job := range []*millrace.JobOf[any, any]{one, many} {
			for _, want := range []any{"text", "", `{"a":1}`, []byte("\x00\xff"), nil, 1.5, true, map[string]any{"a": []any{"b"}}} {
				h, err := job.Add(ctx, c, want)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := h.Wait(ctx); err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("%s: %#v comes back as %#v, %v", job.Name(), want, got, err)
				}
			}
		}
	})
}
