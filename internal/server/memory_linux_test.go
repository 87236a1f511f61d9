package server

import (
	"maps"
	"path"
	"testing"

	"github.com/millrace/millrace/internal/replog/replogtest"
)

func TestMemoryIsThatOfTheLeastControlGroup(t *testing.T) {
	const most = 1 << 40
	for name, c := range map[string]struct {
		groups string
		files  map[string]string
		want   int64
	}{
		"none": {"0::/\n", nil, most},
		"a container, which sees its group as the root": {
			"0::/\n", map[string]string{"/sys/fs/cgroup/memory.max": "268435456\n"}, 256 << 20,
		},
		"a path from outside of the container": {
			"0::/system.slice/docker-1.scope\n", map[string]string{"/sys/fs/cgroup/memory.max": "268435456\n"}, 256 << 20,
		},
		"a service": {
			"0::/system.slice/millrace.service\n",
			map[string]string{"/sys/fs/cgroup/system.slice/millrace.service/memory.max": "536870912\n", "/sys/fs/cgroup/system.slice/memory.max": "max\n"},
			512 << 20,
		},
		"a group above": {
			"0::/a/b\n", map[string]string{"/sys/fs/cgroup/a/b/memory.max": "max\n", "/sys/fs/cgroup/a/memory.max": "134217728\n"}, 128 << 20,
		},
		"version 1": {
			"9:name=systemd:/x\n4:cpu,memory:/a\n0::/\n",
			map[string]string{"/sys/fs/cgroup/memory/a/memory.limit_in_bytes": "268435456\n", "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"},
			256 << 20,
		},
		"no sense": {"::\n0\n0::x/../..\n", map[string]string{"/sys/fs/cgroup/memory.max": "-1\n"}, most},
	} {
		t.Run(name, func(t *testing.T) {
			d := replogtest.NewDisk()
			files := map[string]string{ownGroups: c.groups}
			maps.Copy(files, c.files)
			for file, text := range files {
				if err := d.FS.MkdirAll(path.Dir(file)); err != nil {
					t.Fatal(err)
				}
				if err := replogtest.WriteFile(d, file, []byte(text)); err != nil {
					t.Fatal(err)
				}
			}
			if got := groupMemory(d.FS, most); got != c.want {
				t.Errorf("%d bytes, want %d", got, c.want)
			}
		})
	}
	if got := groupMemory(replogtest.NewDisk().FS, most); got != most {
		t.Errorf("without control groups %d bytes, want %d", got, most)
	}
}
