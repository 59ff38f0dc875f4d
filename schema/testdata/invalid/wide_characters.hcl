locals {
  名前 = "日本語の文章" + var.日本
}
