# program: find a shortest path and draw the graph
# pictures: 1
# sees: Shortest path: ['A', 'C', 'D'] (length 3)

import matplotlib.pyplot as plt
import networkx as nx

G = nx.Graph()
G.add_weighted_edges_from([("A", "B", 4), ("A", "C", 1), ("C", "D", 2), ("B", "D", 5)])
path = nx.shortest_path(G, "A", "D", weight="weight")
length = nx.shortest_path_length(G, "A", "D", weight="weight")
print(f"Shortest path: {path} (length {length})")
pos = nx.spring_layout(G, seed=3)
nx.draw(G, pos, with_labels=True, node_color="lightblue")
nx.draw_networkx_edge_labels(G, pos, edge_labels=nx.get_edge_attributes(G, "weight"))
plt.show()
