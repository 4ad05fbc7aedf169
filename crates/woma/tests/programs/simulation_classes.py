# program: simulate a queue with dataclasses, enums and heaps
# sees: served 5 customers
# sees: Status.DONE
# not: dataclass: function

import heapq
from dataclasses import dataclass, field
from enum import Enum

class Status(Enum):
    WAITING = 1
    DONE = 2

@dataclass(order=True)
class Customer:
    arrival: int
    name: str = field(compare=False)
    status: Status = field(default=Status.WAITING, compare=False)

queue = [Customer(t, f"c{t}") for t in (5, 1, 4, 2, 3)]
heapq.heapify(queue)
served = []
while queue:
    customer = heapq.heappop(queue)
    customer.status = Status.DONE
    served.append(customer)
print(f"served {len(served)} customers")
print(served[0].status)
