// SPDX-License-Identifier: Apache-2.0

// Pathprof tells why a stretch of a Python program's time was slow: which tasks
// the time really passed through, why each wait ended when it did, and which
// lines of code ran meanwhile.
//
// This folder wires flags to packages; it is the only place that prints, logs
// and exits. Each command has a file of its own and is a function from flags to
// output, so that tests run it without a process.
//
// # Record
//
// record attaches to running Python programs or starts one, needs privilege, and
// writes a folder:
//
//	sudo pathprof record -p 4242 --period 1ms -d 10s -o app.pathprof
//	sudo pathprof record -- python3 app.py --port 8000
//
// Ctrl-C, the end of the program or of the time completes the recording. check
// says what a machine allows and what would help. demo does all of it with a
// program of its own.
//
// # Report
//
// report says where the wall time of each thread of the program went. The first
// line is the answer; the table has a line for what the thread did itself and
// for each of its waits, with what the task that ended the wait did meanwhile;
// then come the functions of each class. Quiet threads are a line each.
//
//	$ pathprof report app.pathprof --thread 10 --top 2
//	MainThread of app.py (pid 10): 1.000 s wall: 55 % running, 20 % waiting for task label/label, 20 %
//	    waiting for task python3/stock-refresh, 5 % waiting for timer hrtimer
//
//	     time   share  segments  samples
//	  0.550 s  55.0 %         4       55  running
//	  0.200 s  20.0 %         1       20  waiting for task label/label
//	  0.200 s  20.0 %         1       20    running label/label
//	  0.200 s  20.0 %         3       15  waiting for task python3/stock-refresh
//	  0.150 s  15.0 %         2       15    running python3/stock-refresh
//	  0.050 s   5.0 %         1        -    blocked (timer hrtimer) python3/stock-refresh
//	  0.050 s   5.0 %         1        -  waiting for timer hrtimer
//
//	  modes: 90 % user, 10 % unknown
//	  readings of the waits: whole window and causal agree
//
//	  running python3/python3
//	       self  95 % interval  with callees  function              defined at
//	     63.6 %    32.2 – 86.6        90.9 %  Handler.price         /srv/shop/app.py:20
//	     27.3 %    17.3 – 40.2        27.3 %  Handler.discount      /srv/shop/app.py:30
//	    and 1 function more with 5 samples together
//
//	  in wait (task label/label): running label/label
//	    too few samples (20) for shares: render 20
//	…
//
// A time is an offset from the recording's begin or a date:
//
//	$ pathprof report app.pathprof --thread stock-refresh --from 400ms --to 2024-02-29T12:00:01.6Z
//	Thread stock-refresh of app.py (pid 10, tid 11): 200.000 ms wall: 75 % running, 25 % waiting for
//	    timer hrtimer
//	…
//
// # Profiles
//
// pprof writes everything into path.pb.gz, with the words of the report as
// labels, and a profile for each class. The default value is path/nanoseconds,
// which knows waits, too.
//
//	$ pathprof pprof app.pathprof -o out --by state --thread 10
//	out:
//	  file                 time  samples  what
//	  path.pb.gz        1.000 s       90  everything
//	  01-running.pb.gz  0.900 s       90  running
//	  02-blocked.pb.gz  0.100 s        0  blocked
//
//	next:
//	  go tool pprof -top out/path.pb.gz
//	  go tool pprof -http=: out/01-running.pb.gz
//
// # Diff
//
// diff compares two recordings, or two folders of profiles, class by class and
// function by function, per second of wall time or per request:
//
//	pathprof diff before.pathprof after.pathprof --requests 1200,1350
//
// A difference is called one if chance explains it badly, given how much the program
// varies by itself from one 32nd of the recording to the next, how few samples there are, and how
// many differences were looked at. Else it says how large one would have had to be.
// go tool pprof -diff_base=a/path.pb.gz b/path.pb.gz subtracts the same times, without margins.
//
// # Text
//
// dump prints every event, or every sample with its stack, for other tools:
//
//	$ pathprof dump app.pathprof
//	1000000000 cpu-1 task task=10 parent=1 state=running start=500000000 name=python3
//	1000000000 cpu-1 task task=11/10 parent=1 state=S start=600000000 name=stock-refresh
//	1300000000 cpu0 waking task=11/10 by=0 ctx=hrtimer
//	…
//	$ pathprof dump app.pathprof --samples
//	1005000000 10 10 1 main;Handler.handle;Handler.price
//	…
//
// # Exit status
//
// 0: done. 1: not done, and one line on standard error says why. 2: the command
// line itself is wrong. A reader that closes the pipe early (head) is no error.
package main
