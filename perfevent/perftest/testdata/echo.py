# Prints "ready", then each line it reads in capitals, until its input ends.
import sys

print("ready")
sys.stdout.flush()
for line in iter(sys.stdin.readline, ""):
    print(line.strip().upper())
    sys.stdout.flush()
sys.stderr.write("done\n")
sys.exit(3)
