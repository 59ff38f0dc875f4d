locals {
  l0 = "haha"
  l1 = "${local.l0}${local.l0}${local.l0}${local.l0}${local.l0}${local.l0}${local.l0}${local.l0}${local.l0}${local.l0}${local.l0}${local.l0}${local.l0}${local.l0}${local.l0}${local.l0}"
  l2 = "${local.l1}${local.l1}${local.l1}${local.l1}${local.l1}${local.l1}${local.l1}${local.l1}${local.l1}${local.l1}${local.l1}${local.l1}${local.l1}${local.l1}${local.l1}${local.l1}"
  l3 = "${local.l2}${local.l2}${local.l2}${local.l2}${local.l2}${local.l2}${local.l2}${local.l2}${local.l2}${local.l2}${local.l2}${local.l2}${local.l2}${local.l2}${local.l2}${local.l2}"
  l4 = "${local.l3}${local.l3}${local.l3}${local.l3}${local.l3}${local.l3}${local.l3}${local.l3}${local.l3}${local.l3}${local.l3}${local.l3}${local.l3}${local.l3}${local.l3}${local.l3}"
  l5 = "${local.l4}${local.l4}${local.l4}${local.l4}${local.l4}${local.l4}${local.l4}${local.l4}${local.l4}${local.l4}${local.l4}${local.l4}${local.l4}${local.l4}${local.l4}${local.l4}"
  l6 = "${local.l5}${local.l5}${local.l5}${local.l5}${local.l5}${local.l5}${local.l5}${local.l5}${local.l5}${local.l5}${local.l5}${local.l5}${local.l5}${local.l5}${local.l5}${local.l5}"
  l7 = "${local.l6}${local.l6}${local.l6}${local.l6}${local.l6}${local.l6}${local.l6}${local.l6}${local.l6}${local.l6}${local.l6}${local.l6}${local.l6}${local.l6}${local.l6}${local.l6}"
  l8 = "${local.l7}${local.l7}${local.l7}${local.l7}${local.l7}${local.l7}${local.l7}${local.l7}${local.l7}${local.l7}${local.l7}${local.l7}${local.l7}${local.l7}${local.l7}${local.l7}"
}
