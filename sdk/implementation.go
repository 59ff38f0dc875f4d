package sdk

type implementation interface{}
