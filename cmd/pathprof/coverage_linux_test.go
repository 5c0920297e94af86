// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"

	"pathprof/join"
	"pathprof/perfevent/perftest"
)

// coins is what coins.py says of itself.
type coins struct {
	TID    int32
	Shares map[string]float64
}

// TestLiveCoverage records a program of known shares many times, briefly: the
// stated intervals have to hold the truth as often as they say, whether its thread
// runs in one piece or in many that differ. Five recordings of each kind tell gross
// errors only; with PATHPROF_FULL it makes 120 of each.
func TestLiveCoverage(t *testing.T) {
	needRecorder(t)
	runs := 5
	if os.Getenv("PATHPROF_FULL") != "" {
		runs = 120
	}
	for _, mode := range []string{"alike", "differ"} {
		t.Run(mode, func(t *testing.T) {
			child := perftest.Start(t, perftest.PythonPath(t, "3.11"), workload(t, "coins.py"), mode)
			var truth coins
			if err := json.Unmarshal([]byte(child.Line()), &truth); err != nil {
				t.Fatal(err)
			}
			stated, inside := map[string]int{}, map[string]int{}
			sum := map[string]float64{}
			var all, held int
			methods := map[join.Method]int{}
			for range runs {
				dir := recordOnce(t, child.PID)
				for _, f := range ownFunctions(t, dir, truth.TID) {
					want, known := truth.Shares[f.Name]
					if !known {
						continue
					}
					sum[f.Name] += f.Share / float64(runs)
					if f.TooFew {
						continue
					}
					methods[f.Method]++
					stated[f.Name]++
					all++
					if f.Low <= want && want <= f.High {
						inside[f.Name]++
						held++
					}
				}
				os.RemoveAll(dir)
			}
			for _, name := range []string{"a", "b", "c", "d"} {
				t.Logf("%s: true share %.4f, mean of %d recordings %.4f; %d intervals stated, %d hold it (%.3f)", name,
					truth.Shares[name], runs, sum[name], stated[name], inside[name], float64(inside[name])/float64(stated[name]))
			}
			t.Logf("%d of %d hold; methods %v", held, all, methods)
			// Four functions of a recording depend on each other: as good as
			// two. Four standard errors below 95 % are no chance.
			least := 0.95 - 4*math.Sqrt(0.95*0.05/float64(2*runs))
			if c := float64(held) / float64(all); all < 2*runs || c < least {
				t.Errorf("%d of %d intervals hold the truth, want a part of %.3f", held, all, least)
			}
		})
	}
}

// recordOnce makes a short recording, four samples a millisecond.
func recordOnce(t *testing.T, pid int) (dir string) {
	t.Helper()
	dir = t.TempDir() + "/r.pathprof"
	mustRun(t, "record", "-p", fmt.Sprint(pid), "--period", "250us", "-d", "700ms", "-o", dir)
	return dir
}

// ownFunctions are those of what a thread ran itself.
func ownFunctions(t *testing.T, dir string, tid int32) []join.Function {
	t.Helper()
	r := report(t, dir)
	for _, c := range pathOf(t, &r, tid).Classes {
		if c.Wait == nil && c.State == "running" && c.TID == tid {
			return c.Functions
		}
	}
	t.Fatalf("thread %d does not run", tid)
	return nil
}
