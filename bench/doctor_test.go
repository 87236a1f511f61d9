package bench

import (
	"strings"
	"testing"
)

func TestAHostIsUnfitForWhatWouldLeaveItsRunsOut(t *testing.T) {
	for _, c := range []struct {
		what  string
		b     HostCPU
		own   float64
		level string
	}{
		{"a quiet host", HostCPU{Busy: 0.2, Idle: 3.8}, 0.1, Info},
		{"what this process uses is not foreign", HostCPU{Busy: 2, Idle: 2}, 1.9, Info},
		{"others at work", HostCPU{Busy: 1, Idle: 3}, 0.1, Fail},
		{"a hypervisor that takes 5 %", HostCPU{Idle: 3.8, Steal: 0.2}, 0, Fail},
		{"clocks that stand still", HostCPU{}, 0, Warn},
	} {
		got := judgeQuiet(HostCPU{}, c.b, c.own)
		if got.Level != c.level || got.Level == Fail && got.Fix == "" {
			t.Errorf("%s: %+v, want %s", c.what, got, c.level)
		}
	}
}

func TestWhatIsWrongWithAHostComesWithItsFix(t *testing.T) {
	level := func(h *Host, name string) (string, string) {
		for _, c := range fixed(h, t.TempDir()) {
			if c.Name == name {
				return c.Level, c.Fix
			}
		}
		return "", ""
	}
	good := Host{ClockSource: "tsc", Governor: "performance", HaltPoll: "200000", FdatasyncP50: 140, FdatasyncP99: 900, RAM: 8 << 30, LoopbackP50: 20, LoopbackP99: 60}
	for _, name := range []string{"governor", "idle", "clock source", "fdatasync", "disk", "memory", "loopback"} {
		if l, fix := level(&good, name); l != Info || fix != "" {
			t.Errorf("%s of a good host: %s, fix %q", name, l, fix)
		}
	}
	bad := Host{ClockSource: "hpet", Governor: "powersave", HaltPoll: "0", FdatasyncP50: 30_000, FdatasyncP99: 400_000, RAM: 1 << 30, LoopbackP50: 20, LoopbackP99: 9_000}
	for name, want := range map[string]string{
		"governor": Warn, "idle": Warn, "clock source": Warn, "fdatasync": Fail, "disk": Warn, "memory": Warn, "loopback": Warn,
	} {
		if l, fix := level(&bad, name); l != want || fix == "" {
			t.Errorf("%s of a bad host: %s, fix %q; want %s", name, l, fix, want)
		}
	}
	if _, fix := level(&bad, "fdatasync"); !strings.Contains(fix, "private file system") {
		t.Errorf("a disk that others use: %q", fix)
	}
	all := fixed(&bad, t.TempDir())
	if got := DoctorExit(all); got != ExitUnfit {
		t.Errorf("exit code %d of a bad host, want %d", got, ExitUnfit)
	}
	if got := DoctorExit([]HostCheck{{Level: Info}, {Level: Warn}}); got != ExitOK {
		t.Errorf("exit code %d of warnings, want %d", got, ExitOK)
	}
}
