package bench

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// otherWork is a host of 2 cores on which others use a share of the CPU, from the beginning until they end.
type otherWork struct {
	began time.Time
	share float64
	lasts time.Duration
}

func (o *otherWork) CPU() (HostCPU, error) {
	at := time.Since(o.began)
	busy := min(at, o.lasts).Seconds() * o.share * 2
	return HostCPU{Busy: busy, Idle: at.Seconds()*2 - busy}, nil
}

func (o *otherWork) Pressure() (Pressure, error) { return Pressure{}, nil }

func (o *otherWork) Process(int) (ProcessUse, error) { return ProcessUse{}, nil }

func (o *otherWork) Cores() int { return 2 }

func TestAProfileWithVerdictsDoesNotBeginOnAnUnfitHost(t *testing.T) {
	specs := []runSpec{{suite: &Suite{}, verdicts: true}}
	for _, c := range []struct {
		what   string
		config Config
		specs  []runSpec
		share  float64
		lasts  time.Duration
		refuse bool
	}{
		{"others use half of it", Config{Profile: "seeds"}, specs, 0.5, time.Hour, true},
		{"others end after three seconds", Config{Profile: "seeds"}, specs, 0.5, 3 * time.Second, false},
		{"a quiet host", Config{Profile: "seeds"}, specs, 0.01, time.Hour, false},
		{"it is forced", Config{Profile: "seeds", Force: true}, specs, 0.5, time.Hour, false},
		{"rows are named", Config{}, specs, 0.5, time.Hour, false},
		{"no verdict is asked for", Config{Profile: "smoke"}, []runSpec{{suite: &Suite{}}}, 0.5, time.Hour, false},
		{"the servers are elsewhere", Config{Profile: "seeds", Topology: Remote}, specs, 0.5, time.Hour, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			u := &runner{c: &c.config, host: &otherWork{time.Now(), c.share, c.lasts}, clocks: systemClocks{}}
			err := u.fit(context.Background(), c.specs)
			unfit, refused := errors.AsType[*UnfitError](err)
			if refused != c.refuse || err != nil && !refused {
				t.Errorf("%s: %v", c.what, err)
			}
			if refused && (!strings.Contains(err.Error(), "others use 50.0 %") || !strings.Contains(err.Error(), "--force") || len(unfit.Checks) != 2) {
				t.Errorf("%s: %v", c.what, err)
			}
		})
	}
}
