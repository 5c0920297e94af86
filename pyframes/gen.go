// SPDX-License-Identifier: Apache-2.0

package pyframes

//go:generate go run gen/main.go
