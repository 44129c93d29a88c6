#!/bin/bash
# Root types what people type in an ordinary project: nothing of it is refused, also not what is left in /tmp.
WHO=root; . "$(dirname "$(readlink -f "$0")")/everydaywork.sh"
everyday_work
exit $bad
