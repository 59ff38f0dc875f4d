import verifiers.v1 as vf


class Numbers(vf.Taskset):
    pass
