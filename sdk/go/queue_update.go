package millrace

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/restjson"
)

// updateTries is how often Update begins again: far more often than people and programs change one queue at once.
const updateTries = 20

// Update reads the configuration, has change set fields of it, and sets it if it was not changed meanwhile; else it begins
// again, so change may be called several times. A queue that is not there is made. Settings of a newer server that this version of the
// SDK does not know stay as they are. It returns the new version.
func (q Queue) Update(ctx context.Context, change func(cfg *QueueConfig)) (version uint64, err error) {
	for range updateTries {
		var was *millracev1.QueueConfig
		if was, err = q.get(ctx); err != nil && !errors.Is(err, ErrNotFound) {
			return 0, err
		}
		of := was.GetVersion()
		if version, err = q.set(ctx, changed(was, change), &of); !errors.Is(err, ErrPrecondition) {
			return version, err
		}
	}
	return 0, err
}

// changed is a configuration in which change has set fields. All else of it stays, what this version of the SDK does not know too: fields,
// and words of those that it knows.
func changed(was *millracev1.QueueConfig, change func(cfg *QueueConfig)) *millracev1.QueueConfig {
	cfg := queueConfig(was)
	read := cfg
	// A copy: change may write into what cfg refers to.
	before := proto.CloneOf(cfg.wire())
	change(&cfg)
	out := proto.CloneOf(was)
	if out == nil {
		out = new(millracev1.QueueConfig)
	}
	out.Version = 0 // it is a condition of the request
	merge(out.ProtoReflect(), before.ProtoReflect(), cfg.wire().ProtoReflect())
	for name, is := range map[string]bool{"fairness": cfg.Fairness != read.Fairness, "order": cfg.Order != read.Order} {
		if is {
			restjson.Forget(out.ProtoReflect(), name)
		}
	}
	return out
}

// merge sets in a message what differs between two others of its type.
func merge(into, before, after protoreflect.Message) {
	fields := into.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case before.Has(f) == after.Has(f) && before.Get(f).Equal(after.Get(f)):
		case !after.Has(f):
			into.Clear(f)
		case f.Message() != nil && !f.IsList() && before.Has(f) && into.Has(f):
			merge(into.Mutable(f).Message(), before.Get(f).Message(), after.Get(f).Message())
		default:
			into.Set(f, after.Get(f))
		}
	}
}
