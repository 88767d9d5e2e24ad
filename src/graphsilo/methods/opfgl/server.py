"""O-pFGL's server: builds the surrogate graph."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from graphsilo.errors import UnsupportedError
from graphsilo.federation.interface import Federation
from graphsilo.federation.release import ReleaseRequest, count_sharers, read_sum
from graphsilo.federation.server import ServerBase, ServerContext
from graphsilo.methods.opfgl import private
from graphsilo.methods.opfgl.client import Client, fit_surrogate
from graphsilo.methods.opfgl.config import OpFGLConfig
from graphsilo.methods.opfgl.messages import GlobalStatistics, StatisticsRequest, SurrogateRequest
from graphsilo.training.condensation import ClassStatistics, pooled_statistics
from graphsilo.types import ClientId


class Server(ServerBase[OpFGLConfig]):
    """Sums statistics once and sends back what all clients train on."""

    kept = ("pooled", "download")

    def __init__(self, context: ServerContext[OpFGLConfig]):
        super().__init__(context)
        if not context.schema.num_classes:
            raise UnsupportedError(
                "O-pFGL begins with a graph of classes, for links, too, and the data has no labels. Label some nodes, "
                "or take fedavg, fedprox or scaffold, which predict links without."
            )
        self.pooled: dict[str, Tensor] = {}
        self.download: dict[str, Tensor] = {}

    def set_up(self, federation: Federation) -> None:
        """The one upload, and the surrogate."""
        if not self.pooled:  # else this goes on within the surrogate's steps
            self._ask(federation)
        if self.config.condense_at == "clients":
            self.download = self.pooled
        else:
            self._condense()
        self.pooled = {}

    def _ask(self, federation: Federation) -> None:
        config = self.config
        asked = self.select(federation, 1)
        if config.epsilon is not None:
            self._take_release(federation, asked)
            return
        total = federation.sum(Client.statistics, StatisticsRequest(), to=asked).require(config.min_clients)
        pooled = pooled_statistics(
            total.counts, total.contributors, total.totals, total.within, total.squares, ddof=config.ddof
        )
        # In the precision of the download, so that both variants fit the same surrogate.
        statistics = ClassStatistics(pooled.counts, pooled.mean.float(), pooled.variance.float())
        self.log["statistics_nodes"] = float(pooled.counts.sum())
        self.log["classes_without_statistics"] = float((pooled.counts == 0).sum())
        self.pooled = {**statistics._asdict(), "labelled": total.labelled}

    def _take_release(self, federation: Federation, asked: tuple[ClientId, ...]) -> None:
        config, classes, features = self.config, self.schema.num_classes, self.schema.num_features
        sharers = count_sharers(config, len(asked))
        request = ReleaseRequest(size=private.size(classes, features), honest=sharers)
        total = federation.sum(Client.noisy_statistics, request, to=asked).require(config.min_clients)
        noisy = read_sum(total, config, private.SENSITIVITY, sharers)
        found = private.statistics_of(noisy, classes, features, config.hops + 1)
        self.log["noise"] = noisy.sigma
        self.log["classes_without_statistics"] = float((found.counts == 0).sum())
        statistics = ClassStatistics(found.counts, found.mean.float(), found.variance.float())
        self.pooled = {**statistics._asdict(), "labelled": found.counts}

    def _condense(self) -> None:
        statistics = ClassStatistics(*(self.pooled[name] for name in ClassStatistics._fields))
        surrogate, facts = fit_surrogate(
            statistics, self.pooled["labelled"], self.config, self.context.seed, self.context.device,
            begin=partial(self.work, "surrogate"),
        )  # fmt: skip
        self.log.update({f"surrogate_{name}": value for name, value in facts.items()})
        self.log["surrogate_nodes"] = float(len(surrogate.labels))
        edges = surrogate.adjacency.triu(1).nonzero().t()
        self.download = {
            "features": surrogate.features,
            "labels": surrogate.labels,
            "edges": edges.int().contiguous(),
            "weights": surrogate.adjacency[edges[0], edges[1]],
        }

    def round(self, federation: Federation, number: int) -> None:
        """The one download; each client then makes its own model."""
        # Clients that ``participation`` left out make a model, too: there is no other round.
        if self.config.condense_at == "clients":
            total = federation.sum(Client.condense, GlobalStatistics(**self.download))
        else:
            total = federation.sum(Client.personalise, SurrogateRequest(**self.download))
        total.require(self.config.min_clients)
