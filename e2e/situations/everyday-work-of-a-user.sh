#!/bin/bash
# An ordinary user types what people type in an ordinary project: nothing of it is refused, also not what is left in /tmp.
WHO=user; . "$(dirname "$(readlink -f "$0")")/everydaywork.sh"
everyday_work
exit $bad
