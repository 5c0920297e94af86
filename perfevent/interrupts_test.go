// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/iotest"
)

func TestParseInterrupts(t *testing.T) {
	tests := []struct {
		name, text string
		want       map[int32]string
	}{
		{"empty", "", nil},
		{"header only", "           CPU0       CPU1\n", nil},
		{"x86", `           CPU0       CPU1
  0:         45          0   IO-APIC   2-edge      timer
  8:          1          0   IO-APIC   8-edge      rtc0
 16:        100        200   IO-APIC  16-fasteoi   i801_smbus, ehci_hcd:usb1
 24:          1          0  PCI-MSIX-0000:00:01.0   0-edge      virtio0-config
 25:          0          0  IR-PCI-MSI 327680-edge      xhci_hcd
 26:          0          0  PCI-MSI 524288-edge
 27:          0          0  DMAR-MSI   0-edge      dmar0
NMI:          0          0   Non-maskable interrupts
ERR:          0
`, map[int32]string{
			0: "timer", 8: "rtc0", 16: "i801_smbus, ehci_hcd:usb1", 24: "virtio0-config",
			25: "xhci_hcd", 27: "dmar0",
		}},
		{"arm64", `           CPU0       CPU1       CPU2       CPU3
 11:      15532      13131      13052      13342     GICv3  30 Level     arch_timer
 13:          0          0          0          0     GICv3  23 Level     arm-pmu
 14:       1000          0          0          0   bcm2836-timer   1 Edge      arch_timer
 50:          0          0          0          0  dw gpio  3 Edge      gpio_keys, power key
IPI0:      2130       2309       3004       2222       Rescheduling interrupts
`, map[int32]string{11: "arch_timer", 13: "arm-pmu", 14: "arch_timer", 50: "gpio_keys, power key"}},
		{"no number of the chip", `           CPU0
  2:          0    XT-PIC      cascade
  3:          0    XT-PIC-XT        serial
`, map[int32]string{2: "cascade", 3: "serial"}},
		{"damaged", `           CPU0       CPU1
 99999999999:  1  1  IO-APIC   2-edge      big
 -5:  1  1  IO-APIC   2-edge      negative
 7:  1  x  IO-APIC   2-edge      noise
 6
 5:
 4:  1  1
 3:  1  1  IO-APIC   3-edge      last line`, map[int32]string{3: "last line"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseInterrupts(strings.NewReader(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestParseInterruptsError(t *testing.T) {
	broken := errors.New("broken")
	if _, err := ParseInterrupts(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}

func FuzzParseInterrupts(f *testing.F) {
	f.Add("CPU0 CPU1\n 1: 2 3 IO-APIC 4-edge  a, b\n")
	f.Add("\n 1: PIC  x\n:\n9:")
	f.Fuzz(func(t *testing.T, text string) {
		names, err := ParseInterrupts(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		for number, name := range names {
			if number < 0 || name == "" || !strings.Contains(text, name) {
				t.Errorf("interrupt %d: %q is not in the text", number, name)
			}
		}
	})
}
